#!/usr/bin/env bash
# Starts and stops a real Neo4j server (Community, one database) for tests. Everything that it writes is
# in DIR; the packages are fetched once, through Maven, into ${ANAMNESIS_SERVERS:-target/servers}.
#
#   infra/servers/neo4j.sh start DIR    prints ANAMNESIS_TEST_NEO4J=bolt://…  (again: same data, same port)
#   infra/servers/neo4j.sh stop DIR     in order
#   infra/servers/neo4j.sh kill DIR     at once, as in a crash
#
# Without a password, because it listens on loopback only. With NEO4J_PASSWORD set at the first start, it
# asks for that password of the user neo4j.
# For many short lives: compiled once, and written to disk every second, as physical erasure asks. With
# SERVERS_FOR=load in the environment as it is under load: compiled twice, written every 15 seconds.
# Needs java (17 or 21) and mvn. Neo4j is a separate process under its own licence (GPLv3).
set -euo pipefail

version=5.26.30
# Maven's copy plugin is named in full, so that a later release cannot change what this does.
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
# A loaded machine has needed 90 seconds.
ready_seconds=240
stop_seconds=30

usage() {
    echo "usage: infra/servers/neo4j.sh start|stop|kill DIR" >&2
    exit 2
}

[ $# -eq 2 ] || usage
command=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}
jars=$servers/neo4j-$version
mkdir -p "$2"
dir=$(cd "$2" && pwd)

# Whether the process that this script started for DIR is still there.
is_running() {
    [ -f "$dir/pid" ] || return 1
    local pid
    pid=$(cat "$dir/pid")
    [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "--home-dir=$dir "
}

# fetch: the server's packages, whole or not at all; of several at once, the first fetches.
fetch() {
    [ -d "$jars" ] && return
    mkdir -p "$servers"
    (
        flock 9
        [ -d "$jars" ] && exit
        new=$(mktemp -d "$servers/neo4j.XXXXXX")
        trap 'rm -rf "$new"' EXIT
        cat >"$new/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>anamnesis</groupId><artifactId>neo4j-for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.neo4j</groupId><artifactId>neo4j</artifactId><version>$version</version>
  </dependency></dependencies>
</project>
POM
        mvn -B -ntp -q -f "$new/pom.xml" "$copy" -DoutputDirectory="$new/jars" -DincludeScope=runtime >&2
        mv "$new/jars" "$jars"
    ) 9>"$servers/neo4j.lock"
}

is_open() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        is_open "$port" || break
    done
    echo "$port"
}

configure() {
    mkdir -p "$dir/conf" "$dir/logs"
    [ -f "$dir/port" ] || free_port >"$dir/port"
    if [ -n "${NEO4J_PASSWORD:-}" ] && [ ! -f "$dir/has-password" ]; then
        NEO4J_HOME=$dir NEO4J_CONF=$dir/conf java -cp "$jars/*" \
            org.neo4j.server.startup.Neo4jAdminCommand dbms set-initial-password "$NEO4J_PASSWORD" \
            >"$dir/logs/password.log" 2>&1
        touch "$dir/has-password"
    fi
    local auth=false
    [ ! -f "$dir/has-password" ] || auth=true
    local checkpoint=1s
    [ "${SERVERS_FOR:-tests}" != load ] || checkpoint=15s
    # The last five are what physical erasure asks for: log files that are short and not kept, and a
    # checkpoint soon after a change. In production an interval of some seconds will do.
    cat >"$dir/conf/neo4j.conf" <<CONF
dbms.security.auth_enabled=$auth
dbms.usage_report.enabled=false
server.default_listen_address=127.0.0.1
server.bolt.listen_address=127.0.0.1:$(cat "$dir/port")
server.http.enabled=false
server.https.enabled=false
server.memory.pagecache.size=64m
internal.dbms.bolt.netty_server_shutdown_quiet_period=0
db.transaction.timeout=60s
db.lock.acquisition.timeout=30s
db.tx_log.rotation.retention_policy=keep_none
db.tx_log.rotation.size=1m
db.tx_log.preallocate=false
db.checkpoint.interval.time=$checkpoint
CONF
}

start() {
    if ! is_running; then
        fetch
        configure
        : >"$dir/logs/console.log"
        local options=() package
        for package in java.nio java.io sun.nio.ch java.util.concurrent; do
            options+=(--add-opens "java.base/$package=ALL-UNNAMED")
        done
        [ "${SERVERS_FOR:-tests}" = load ] || options+=(-XX:TieredStopAtLevel=1)
        # A session of its own: an interrupt of the caller does not reach it.
        setsid java -Xms128m -Xmx512m -XX:+UseSerialGC "${options[@]}" -cp "$jars/*" \
            org.neo4j.server.CommunityEntryPoint \
            "--home-dir=$dir" "--config-dir=$dir/conf" --console-mode \
            >"$dir/logs/console.log" 2>&1 </dev/null 9>&- &
        echo $! >"$dir/pid"
        local waited=0
        until grep -q 'Started\.$' "$dir/logs/console.log" && is_open "$(cat "$dir/port")"; do
            if ! is_running && [ "$waited" -gt 20 ] || [ "$waited" -ge $((ready_seconds * 10)) ]; then
                echo "neo4j is not ready; the end of $dir/logs/console.log:" >&2
                tail -n 20 "$dir/logs/console.log" >&2
                halt KILL
                exit 1
            fi
            sleep 0.1
            waited=$((waited + 1))
        done
    fi
    echo "ANAMNESIS_TEST_NEO4J=bolt://127.0.0.1:$(cat "$dir/port")"
}

# halt SIGNAL: sends it and waits until the process is gone.
halt() {
    is_running || return 0
    local waited=0
    kill "-$1" "$(cat "$dir/pid")" || return 0
    while is_running; do
        if [ "$waited" -eq $((stop_seconds * 10)) ]; then
            kill -KILL "$(cat "$dir/pid")" || true
        fi
        sleep 0.1
        waited=$((waited + 1))
    done
}

case $command in
start) start ;;
stop) halt TERM ;;
kill) halt KILL ;;
*) usage ;;
esac
