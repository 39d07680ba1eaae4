#!/usr/bin/env bash
# Starts and stops one schema registry (Apicurio, which speaks Confluent's API) for tests.
#
#   infra/servers/registry.sh start DIR    prints ANAMNESIS_TEST_REGISTRY=http://… when it is ready
#   infra/servers/registry.sh stop DIR     SIGTERM, and SIGKILL when that is not enough
#   infra/servers/registry.sh kill DIR     SIGKILL
#
# Everything of this registry (schemas, log, port, pid) lies in DIR; starting again keeps schemas and
# port. The package comes from Maven on first use, into ${ANAMNESIS_SERVERS:-target/servers}.
# Needs mvn, and a Java of 21 or later, which is looked for in $JAVA_25_HOME, $JAVA_HOME, the PATH and
# /usr/lib/jvm.
set -euo pipefail

usage="usage: infra/servers/registry.sh start|stop|kill DIR"
verb=${1:?$usage}
dir=${2:?$usage}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}

version=3.3.3
# Maven's plugin is named in full, so that a later release cannot change what this does.
unpack=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack-dependencies
java_min=21
# Seconds. A machine that also compiles is slow.
ready_max=180
stop_max=20
app=$servers/registry-$version

fail() {
    echo "registry: $*" >&2
    exit 1
}

fetch() {
    if [ -f "$app/complete" ]; then
        return
    fi
    command -v mvn >/dev/null || fail "Maven (mvn) is not installed"
    mkdir -p "$servers"
    # Two starts at once fetch once.
    exec 8>"$servers/registry.lock"
    flock 8
    if [ ! -f "$app/complete" ]; then
        local work
        work=$(mktemp -d "$servers/.registry-XXXXXX")
        cat >"$work/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>anamnesis</groupId>
  <artifactId>registry-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId><version>$version</version>
      <type>tar.gz</type><classifier>all</classifier>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
XML
        mvn --batch-mode --no-transfer-progress --quiet -Dstyle.color=never -f "$work/pom.xml" "$unpack" \
            -DoutputDirectory="$work/app" -DexcludeTransitive=true >&2
        rm -rf "$app"
        mv "$work/app" "$app"
        rm -rf "$work"
        touch "$app/complete"
    fi
    exec 8>&-
}

# major JAVA: the release of a java program; nothing when it is none.
major() {
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

find_java() {
    local java found
    for java in "${JAVA_25_HOME:-}/bin/java" "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java; do
        [ -x "$java" ] || continue
        found=$(major "$java")
        if [ "${found:-0}" -ge "$java_min" ]; then
            echo "$java"
            return
        fi
    done
    fail "no Java of release $java_min or later: name one as JAVA_25_HOME"
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

# gone PID: whether nothing of the process is left. Its name goes before its files and ports do, and its
# first thread before the others.
gone() {
    local tasks=(/proc/"$1"/task/*)
    [ ! -d "/proc/$1" ] || { [ "${#tasks[@]}" -le 1 ] && grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"; }
}

# The pid of the registry of this DIR, if it runs.
running() {
    local pid
    [ -f "$dir/pid" ] || return 1
    pid=$(cat "$dir/pid")
    # The pid may have gone to somebody else since.
    grep -qsF "jdbc:h2:file:$dir/data/registry" "/proc/$pid/cmdline" || return 1
    echo "$pid"
}

# Whether it answers a question about subjects.
answers() {
    local status
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /apis/ccompat/v7/subjects HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
    read -r -t 5 status <&3 || status=
    exec 3>&-
    [[ $status == *" 200 "* ]]
}

start() {
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    fetch
    [ -f "$dir/port" ] || free_port >"$dir/port"
    local port deadline
    port=$(cat "$dir/port")
    if ! running >/dev/null; then
        local java management
        java=$(find_java)
        management=$(free_port)
        while [ "$management" = "$port" ]; do management=$(free_port); done
        # Without an address of its own, the management port would listen everywhere. And a schema that was
        # answered survives SIGKILL only without a delay of writes.
        cd "$app"
        setsid "$java" -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
            -Dquarkus.http.host=127.0.0.1 "-Dquarkus.http.port=$port" \
            -Dquarkus.management.host=127.0.0.1 "-Dquarkus.management.port=$management" \
            -Dapicurio.storage.kind=sql -Dapicurio.storage.sql.kind=h2 \
            "-Dapicurio.datasource.url=jdbc:h2:file:$dir/data/registry;WRITE_DELAY=0" \
            -jar quarkus-run.jar >"$dir/registry.log" 2>&1 </dev/null &
        echo $! >"$dir/pid"
    fi
    deadline=$((SECONDS + ready_max))
    until (answers "$port") 2>/dev/null; do
        # By its pid alone: one that was just started may not yet be the program that it will be.
        ! gone "$(cat "$dir/pid")" || fail "the registry stopped: $(grep -m 1 -E 'ERROR|Exception' "$dir/registry.log") (see $dir/registry.log)"
        [ "$SECONDS" -lt "$deadline" ] || fail "not ready after $ready_max s: see $dir/registry.log"
        sleep 0.1
    done
    echo "ANAMNESIS_TEST_REGISTRY=http://127.0.0.1:$port/apis/ccompat/v7"
}

# end SIGNAL SECONDS: sends it and waits until the registry is gone.
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
