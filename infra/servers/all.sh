#!/usr/bin/env bash
# Starts and stops the servers of the distributed form for tests, each by its own script.
#
#   infra/servers/all.sh start DIR [SERVER…]    prints one line VARIABLE=address per server when all are
#                                               ready: kafka, neo4j, postgres and qdrant-double unless named
#   infra/servers/all.sh stop DIR
#   infra/servers/all.sh kill DIR
#
# Each server lies in its own folder of DIR. What is started is stopped again when one does not start.
set -euo pipefail

usage="usage: infra/servers/all.sh start|stop|kill DIR [SERVER…]"
verb=${1:?$usage}
dir=${2:?$usage}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
servers=("${@:3}")
if [ "${#servers[@]}" = 0 ]; then
    servers=(kafka neo4j postgres qdrant-double)
fi

# Of all that lie in DIR.
each() {
    local server status=0
    for server in kafka neo4j postgres qdrant-double registry model; do
        if [ -d "$dir/$server" ]; then
            "$here/$server.sh" "$1" "$dir/$server" || status=1
        fi
    done
    return "$status"
}

case $verb in
start)
    mkdir -p "$dir"
    # Side by side: each waits for itself most of the time.
    pids=()
    for server in "${servers[@]}"; do
        "$here/$server.sh" start "$dir/$server" >"$dir/$server.address" &
        pids+=($!)
    done
    status=0
    for pid in "${pids[@]}"; do
        wait "$pid" || status=1
    done
    if [ "$status" != 0 ]; then
        each stop >&2 || true
        exit 1
    fi
    for server in "${servers[@]}"; do
        cat "$dir/$server.address"
    done
    ;;
stop | kill) each "$verb" ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
