#!/usr/bin/env bash
# Everything that must hold before a change is accepted, in the order that fails fastest. CI calls
# this file and checks nothing else.
#
#   infra/test.sh           all of it
#   infra/test.sh quick     format and the light crates only: the loop while one works
#
# Some tests need more than the tree: ANAMNESIS_MODELS names a folder that infra/get-models.sh filled,
# ANAMNESIS_DATA a folder of evaluation sets. ANAMNESIS_REQUIRED=1 (as in CI) makes it a failure when
# something is not there. Kafka with a schema registry, Neo4j, PostgreSQL, a small language model and the
# test tool that speaks Qdrant's protocol are started for the tests and stopped after them; their packages
# are kept in ${ANAMNESIS_SERVERS:-target/servers}.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
servers=$(mktemp -d)
# PostgreSQL runs as a user of its own when these tests run as root.
chmod 755 "$servers"
# Also after a failure, so that the last line always says how far it came.
trap 'infra/servers/all.sh stop "$servers" || true; rm -rf "$servers"; summary' EXIT

# The last lines are what is read first: what failed, in short, and how many passed.
summary() {
    awk '/^---- .* stdout ----$/ { left = 40 } /^ *Doc-tests / { left = 0 } left > 0 { print; left -= 1 }' "$log"
    awk '/^test result:/ { passed += $4; failed += $6 } END { printf "%d passed, %d failed\n", passed, failed }' "$log"
    rm -f "$log"
}

# step NAME COMMAND…: runs it and says how long it took.
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee -a "$log"
    printf '== %s took %d s\n' "$name" "$((SECONDS - start))"
}

step format cargo fmt --all --check
if cargo deny --version >/dev/null 2>&1; then
    step licences cargo deny check --hide-inclusion-graph --allow duplicate bans licenses sources
elif [ "${ANAMNESIS_REQUIRED:-}" = 1 ]; then
    echo "cargo-deny is not installed" >&2
    exit 1
else
    echo "cargo-deny is not installed: licences and sources are left to CI"
fi
if [ "${1:-all}" = quick ]; then
    # The gate simulates all seeds; the loop while one works needs an answer soon.
    ANAMNESIS_SEEDS=${ANAMNESIS_SEEDS:-50} step "light crates" cargo test --locked --quiet
    exit
fi
step "alert rules" infra/prometheus/check.sh
step lints cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
# Real servers, on this machine and for these tests only. One that does not start is a failure.
start_servers() {
    infra/servers/all.sh start "$servers" kafka neo4j postgres qdrant-double registry model \
        >"$servers/addresses"
    while IFS='=' read -r variable address; do
        export "$variable=$address"
    done <"$servers/addresses"
}
start=$SECONDS
start_servers
printf '\n== servers took %d s\n' "$((SECONDS - start))"
# All tests include those of the light crates. Building these alone first would build most libraries
# twice, since fewer crates ask for fewer of their features.
step "all crates" cargo test --locked --workspace --no-fail-fast -- --skip fleet_
# A fleet is ten processes and four servers: one at a time, and nothing beside it.
step fleets cargo test --locked --workspace --no-fail-fast --test it -- fleet_ --test-threads=1
