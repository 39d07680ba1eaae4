#!/usr/bin/env bash
# A real Prometheus for tests, on the loopback address only.
#
#   infra/servers/prometheus.sh start DIR   starts it over DIR/prometheus.yml and prints
#                                           ANAMNESIS_TEST_PROMETHEUS=URL
#   infra/servers/prometheus.sh stop DIR    ends it in order
#   infra/servers/prometheus.sh kill DIR    ends it at once
#   infra/servers/prometheus.sh tool NAME   prints the path of prometheus or promtool
#
# Where it is not installed, Debian's package is unpacked into ${ANAMNESIS_SERVERS:-target/servers}:
# installed, it would start a service.
set -euo pipefail

usage='usage: infra/servers/prometheus.sh start|stop|kill DIR, or tool prometheus|promtool'
verb=${1:?$usage}
subject=${2:?$usage}
root=$(cd "$(dirname "$0")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}
unpacked=$servers/prometheus
ready_seconds=120
stop_seconds=30

fail() {
    echo "prometheus.sh: $*" >&2
    exit 1
}

# fetch: the package, whole or not at all; of several at once, the first fetches.
fetch() {
    [ -d "$unpacked" ] && return
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        fail "prometheus is not installed, and there is no apt-get to get it with"
    mkdir -p "$servers"
    (
        flock 9
        [ -d "$unpacked" ] && exit
        new=$(mktemp -d "$servers/prometheus.XXXXXX")
        trap 'rm -rf "$new"' EXIT
        cd "$new"
        apt-get download -q prometheus >&2 || { apt-get update -q && apt-get download -q prometheus; } >&2 ||
            fail "cannot get the package prometheus"
        dpkg-deb -x prometheus_*.deb unpacked
        mv unpacked "$unpacked"
    ) 9>"$servers/prometheus.lock"
}

# tool NAME: its path.
tool() {
    command -v "$1" && return
    fetch
    echo "$unpacked/usr/bin/$1"
}

# Whether the process in the pid file is the server of this folder: a number may be another's by now.
running() {
    [ -s "$dir/pid" ] && tr '\0' ' ' <"/proc/$(cat "$dir/pid")/cmdline" 2>/dev/null | grep -qF "$dir/data"
}

is_open() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

is_ready() {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /-/ready HTTP/1.0\r\n\r\n' >&3
    head -n 1 <&3 | grep -q ' 200 '
}

free_port() {
    local port
    for _ in $(seq 100); do
        # Below the range that systems give to outgoing connections.
        port=$((RANDOM % 12000 + 20000))
        if ! is_open "$port"; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

start() {
    [ -f "$dir/prometheus.yml" ] || fail "there is no $dir/prometheus.yml"
    local program
    program=$(tool prometheus)
    [ -s "$dir/port" ] || free_port >"$dir/port"
    if ! running; then
        # A session of its own: an interrupt of the caller does not reach it.
        setsid "$program" --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/data" \
            --web.listen-address="127.0.0.1:$(cat "$dir/port")" >"$dir/log" 2>&1 </dev/null &
        echo $! >"$dir/pid"
        local waited=0
        until (is_ready "$(cat "$dir/port")") 2>/dev/null; do
            if ! running && [ "$waited" -gt 20 ] || [ "$waited" -ge $((ready_seconds * 10)) ]; then
                end KILL
                fail "it is not ready: $(tail -n 3 "$dir/log")"
            fi
            sleep 0.1
            waited=$((waited + 1))
        done
    fi
    echo "ANAMNESIS_TEST_PROMETHEUS=http://127.0.0.1:$(cat "$dir/port")"
}

# end SIGNAL: sends it and waits until the process is gone.
end() {
    running || return 0
    kill "-$1" "$(cat "$dir/pid")" || return 0
    local waited=0
    while running; do
        [ "$waited" -lt $((stop_seconds * 10)) ] || kill -KILL "$(cat "$dir/pid")" || true
        sleep 0.1
        waited=$((waited + 1))
    done
}

if [ "$verb" != tool ]; then
    mkdir -p "$subject"
    dir=$(realpath "$subject")
fi
case $verb in
start) start ;;
stop) end TERM ;;
kill) end KILL ;;
tool) tool "$subject" ;;
*) fail "$usage" ;;
esac
