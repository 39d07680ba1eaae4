#!/usr/bin/env bash
# A real PostgreSQL for tests, on the loopback address only.
#
#   infra/servers/postgres.sh start DIR   starts it and prints ANAMNESIS_TEST_POSTGRES=URL
#   infra/servers/postgres.sh stop DIR    ends it in order
#   infra/servers/postgres.sh kill DIR    ends it as a loss of power would, as far as a process can
#
# DIR holds the data, the log, the port and the pid; a second start on it keeps them. What is
# acknowledged is on the disk: fsync stays on. PostgreSQL refuses to run as root: started by root, it
# runs as the user postgres (or nobody), who then owns DIR.
set -euo pipefail

usage='usage: infra/servers/postgres.sh start|stop|kill DIR'
verb=${1:?$usage}
dir=${2:?$usage}
user=anamnesis
ready_seconds=120
stop_seconds=30

fail() {
    echo "postgres.sh: $*" >&2
    exit 1
}

# program NAME: its path. Debian keeps the server's programs out of PATH.
program() {
    local found
    found=$(command -v "$1" || true)
    if [ -z "$found" ]; then
        found=$(find /usr/lib/postgresql -path "*/bin/$1" 2>/dev/null | sort -V | tail -n 1)
    fi
    echo "$found"
}

fetch() {
    if [ -n "$(program initdb)" ]; then
        return
    fi
    [ "$(id -u)" = 0 ] || fail "initdb is not installed; on Debian: apt-get install postgresql"
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql >&2 ||
        fail "cannot install the package postgresql"
}

# as_user COMMAND…: not as root.
as_user() {
    if [ "$(id -u)" != 0 ]; then
        "$@"
    elif command -v setpriv >/dev/null; then
        setpriv --reuid "$account" --regid "$(id -g "$account")" --clear-groups -- "$@"
    else
        runuser -u "$account" -- "$@"
    fi
}

account=$(id -un)
if [ "$account" = root ]; then
    account=nobody
    if id postgres >/dev/null 2>&1; then
        account=postgres
    fi
fi

# Whether the process in the pid file is the server of this folder: a number may be another's by now.
running() {
    [ -s "$dir/pid" ] && tr '\0' ' ' <"/proc/$(cat "$dir/pid")/cmdline" 2>/dev/null | grep -qF "$dir/data"
}

free_port() {
    local port
    for _ in $(seq 100); do
        # Below the range that systems give to outgoing connections.
        port=$((RANDOM % 12000 + 20000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

create() {
    local password
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    (umask 077 && echo "$password" >"$dir/password")
    if [ "$(id -u)" = 0 ]; then
        chown -R "$account" "$dir"
    fi
    as_user test -w "$dir" || fail "the user $account cannot write into $dir: open its parent folders"
    as_user "$(program initdb)" --pgdata "$dir/data" --username "$user" --pwfile "$dir/password" \
        --auth scram-sha-256 --encoding UTF8 --locale C --no-sync >"$dir/initdb.log" 2>&1 ||
        fail "initdb failed: $(tail -n 3 "$dir/initdb.log")"
    cat >>"$dir/data/postgresql.conf" <<'CONF'
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = on
synchronous_commit = on
shared_buffers = 128MB
max_connections = 200
max_wal_size = 1GB
jit = off
CONF
    # Last, so that its presence says that the rest is there.
    free_port >"$dir/port"
}

start() {
    fetch
    mkdir -p "$dir"
    dir=$(realpath "$dir")
    if [ ! -s "$dir/port" ]; then
        rm -rf "$dir/data"
        create
    fi
    if ! running; then
        as_user touch "$dir/log"
        as_user "$(program pg_ctl)" start --wait --timeout "$ready_seconds" --pgdata "$dir/data" \
            --log "$dir/log" --options "-p $(cat "$dir/port")" >/dev/null ||
            fail "it did not start: $(tail -n 3 "$dir/log")"
        head -n 1 "$dir/data/postmaster.pid" >"$dir/pid"
    fi
    echo "ANAMNESIS_TEST_POSTGRES=postgres://$user:$(cat "$dir/password")@127.0.0.1:$(cat "$dir/port")/postgres"
}

# end SIGNAL PID…
end() {
    local signal=$1
    shift
    kill "-$signal" "$@" 2>/dev/null || true
}

# Also waits until its parent has taken note of its end: until then a new server believes in the old one.
await_end() {
    local pid
    pid=$(cat "$dir/pid")
    for _ in $(seq $((stop_seconds * 10))); do
        if [ ! -e "/proc/$pid" ]; then
            rm -f "$dir/pid"
            return
        fi
        sleep 0.1
    done
    echo "postgres.sh: still there after $stop_seconds s" >&2
    return 1
}

kill_all() {
    local pid
    pid=$(cat "$dir/pid")
    # Its children have sessions of their own and would outlive it for a moment.
    # shellcheck disable=SC2046
    end KILL "$pid" $(pgrep -P "$pid" || true)
    await_end
}

[ "$verb" = start ] || dir=$(realpath "$dir")
case $verb in
start) start ;;
stop)
    running || exit 0
    # SIGTERM would wait for every client to leave; SIGINT sends them away and stops in order.
    end INT "$(cat "$dir/pid")"
    await_end || kill_all
    ;;
kill)
    running || exit 0
    kill_all
    ;;
*) fail "$usage" ;;
esac
