#!/usr/bin/env bash
# Starts and stops the test tool that speaks Qdrant's protocol.
#
#   qdrant-double.sh start DIR   builds it on first use, starts it, prints ANAMNESIS_TEST_QDRANT=http://…
#   qdrant-double.sh stop DIR    asks it to stop, and ends it if it does not
#   qdrant-double.sh kill DIR    ends it as a crash would
#
# Everything lies in DIR: data, log, pid, port. Started again on the same DIR it keeps data and port.
# The build goes to ${ANAMNESIS_SERVERS:-target/servers}/qdrant-double. With SERVERS_FOR=load in the environment it is
# optimised: it takes longer to build and runs faster.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}
profile=dev
folder=debug
if [ "${SERVERS_FOR:-tests}" = load ]; then
    profile=release
    folder=release
fi
ready_seconds=60
stop_seconds=20

usage() {
    echo "usage: $0 start|stop|kill DIR" >&2
    exit 2
}

[ $# -eq 2 ] || usage
command=$1
dir=$2

# Whether a process runs: one that has ended and was not waited for does not.
is_alive() {
    case $(ps -o stat= -p "$1" 2>/dev/null || true) in
    "" | Z*) return 1 ;;
    *) return 0 ;;
    esac
}

# Whether the process that this script started in DIR is running.
is_running() {
    [ -s "$dir/pid" ] && is_alive "$(cat "$dir/pid")"
}

build() {
    # Its own workspace and folder: the engine is heavy, and nothing else pays for it. A test that cargo
    # runs has variables of cargo's own, for which the engine would be built once more.
    (
        for variable in $(compgen -e); do
            case $variable in
            CARGO_HOME | CARGO_HTTP_* | CARGO_INCREMENTAL | CARGO_NET_* | CARGO_REGISTR* | CARGO_SOURCE_*) ;;
            CARGO | CARGO_* | LD_LIBRARY_PATH | RUST_RECURSION_COUNT | RUSTUP_TOOLCHAIN*) unset "$variable" ;;
            *) ;;
            esac
        done
        CARGO_TARGET_DIR="$servers/qdrant-double" cargo build --quiet --locked --profile "$profile" \
            --manifest-path "$root/services/shared/qdrant-double/Cargo.toml" >&2
    )
}

start() {
    mkdir -p "$dir/data"
    if ! is_running; then
        build
        local port=0
        if [ -s "$dir/port" ]; then port=$(cat "$dir/port"); fi
        : >"$dir/address"
        nohup "$servers/qdrant-double/$folder/anamnesis-qdrant-double" --dir "$dir/data" --port "$port" \
            >"$dir/address" 2>>"$dir/log" </dev/null &
        echo $! >"$dir/pid"
    fi
    local deadline=$((SECONDS + ready_seconds))
    until [ -s "$dir/address" ]; do
        if ! is_running; then
            echo "the qdrant double has ended; its log is $dir/log" >&2
            exit 1
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            echo "the qdrant double is not ready after $ready_seconds seconds" >&2
            exit 1
        fi
        sleep 0.1
    done
    local address
    address=$(head -n 1 "$dir/address")
    echo "${address##*:}" >"$dir/port"
    echo "ANAMNESIS_TEST_QDRANT=$address"
}

# Sends a signal and waits until the process is gone.
finish() {
    local signal=$1
    is_running || { rm -f "$dir/pid"; return 0; }
    local pid
    pid=$(cat "$dir/pid")
    kill "-$signal" "$pid" 2>/dev/null || true
    local deadline=$((SECONDS + stop_seconds))
    while is_alive "$pid"; do
        if [ "$SECONDS" -ge "$deadline" ]; then kill -KILL "$pid" 2>/dev/null || true; fi
        sleep 0.05
    done
    rm -f "$dir/pid"
}

case $command in
start) start ;;
stop) finish TERM ;;
kill) finish KILL ;;
*) usage ;;
esac
