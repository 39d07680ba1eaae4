#!/usr/bin/env bash
# Starts and stops one Apache Kafka broker (KRaft, broker and controller in one) for tests.
#
#   infra/servers/kafka.sh start DIR    prints ANAMNESIS_TEST_KAFKA=host:port when it is ready, and
#                                       ANAMNESIS_TEST_KAFKA_SECURE=host:port of the listener with TLS and
#                                       SCRAM, ANAMNESIS_TEST_KAFKA_SECRETS=DIR with its ca.pem and the
#                                       password of the user "anamnesis"
#   infra/servers/kafka.sh stop DIR     SIGTERM, and SIGKILL when that is not enough
#   infra/servers/kafka.sh kill DIR     SIGKILL
#
# Everything of this broker (data, log, ports, pid) lies in DIR; starting again keeps data and ports.
# With SERVERS_FOR=load in the environment the JVM compiles twice: it starts later and runs faster.
# The packages come from Maven on first use, into ${ANAMNESIS_SERVERS:-target/servers}/kafka-VERSION.
set -euo pipefail

usage="usage: infra/servers/kafka.sh start|stop|kill DIR"
verb=${1:?$usage}
dir=${2:?$usage}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
servers=${ANAMNESIS_SERVERS:-$root/target/servers}

version=4.4.0
# Without a binding of SLF4J the broker never says that it has started.
log_binding=2.25.5
# Maven's copy plugin is named in full, so that a later release cannot change what this does.
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
# Seconds. A machine that also compiles is slow.
ready_max=120
stop_max=20
lib=$servers/kafka-$version

fail() {
    echo "kafka: $*" >&2
    exit 1
}

fetch() {
    if [ -f "$lib/complete" ]; then
        return
    fi
    command -v mvn >/dev/null || fail "Maven (mvn) is not installed"
    mkdir -p "$servers"
    # Two starts at once fetch once.
    exec 8>"$servers/kafka.lock"
    flock 8
    if [ ! -f "$lib/complete" ]; then
        local work
        work=$(mktemp -d "$servers/.kafka-XXXXXX")
        cat >"$work/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>anamnesis</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>$log_binding</version>
    </dependency>
  </dependencies>
</project>
XML
        mvn --batch-mode --no-transfer-progress --quiet -Dstyle.color=never -f "$work/pom.xml" "$copy" \
            -DoutputDirectory="$work/lib" -DincludeScope=runtime >&2
        rm -rf "$lib"
        mv "$work/lib" "$lib"
        rm -rf "$work"
        touch "$lib/complete"
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

# gone PID: whether nothing of the process is left. Its name goes before its files and ports do, and its
# first thread before the others.
gone() {
    local tasks=(/proc/"$1"/task/*)
    [ ! -d "/proc/$1" ] || { [ "${#tasks[@]}" -le 1 ] && grep -qs '^State:[[:space:]]*Z' "/proc/$1/status"; }
}

# The pid of the broker of this DIR, if it runs.
running() {
    local pid
    [ -f "$dir/pid" ] || return 1
    pid=$(cat "$dir/pid")
    # The pid may have gone to somebody else since.
    grep -qsF "$dir/server.properties" "/proc/$pid/cmdline" || return 1
    echo "$pid"
}

# A certificate that its own listener is known by, and a password for whoever asks there.
make_secrets() {
    local keytool
    # Beside java, where the package manager makes no link of its own.
    keytool=$(command -v keytool) || keytool=$(dirname "$(readlink -f "$(command -v java)")")/keytool
    (umask 077 && head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/password")
    rm -f "$dir/broker.p12"
    "$keytool" -genkeypair -alias broker -keyalg EC -validity 3650 -dname CN=127.0.0.1 -ext san=ip:127.0.0.1 \
        -storetype PKCS12 -keystore "$dir/broker.p12" -storepass "$(cat "$dir/password")" >"$dir/keytool.log" 2>&1 &&
        "$keytool" -exportcert -rfc -alias broker -keystore "$dir/broker.p12" \
            -storepass "$(cat "$dir/password")" -file "$dir/ca.pem" >>"$dir/keytool.log" 2>&1 ||
        fail "no certificate was made: see $dir/keytool.log"
}

configure() {
    local port controller secure id
    port=$(free_port)
    controller=$(free_port)
    while [ "$controller" = "$port" ]; do controller=$(free_port); done
    secure=$(free_port)
    while [ "$secure" = "$port" ] || [ "$secure" = "$controller" ]; do secure=$(free_port); done
    make_secrets
    # A cluster id is 16 bytes in base64 for addresses; one that starts with a dash reads as an option.
    id=A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)
    cat >"$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,SECURE://127.0.0.1:$secure,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port,SECURE://127.0.0.1:$secure
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.location=$dir/broker.p12
listener.name.secure.ssl.keystore.password=$(cat "$dir/password")
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs=$dir/data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# Tests ask for short sessions.
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=200
# A restart after SIGKILL waits for the session of the broker that died. A shorter one fences a broker that
# gets no processor for a moment: its partitions lose their leader and every group begins anew.
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=500
# Each partition holds two index files of this size in memory maps.
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
PROPERTIES
    echo "127.0.0.1:$port" >"$dir/address"
    echo "127.0.0.1:$secure" >"$dir/address-secure"
    cat >"$dir/log4j2.properties" <<PROPERTIES
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %m%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
PROPERTIES
    java -cp "$lib/*" -Xmx128m -Dlog4j2.configurationFile="$dir/log4j2.properties" \
        kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" \
        --add-scram "SCRAM-SHA-512=[name=anamnesis,password=$(cat "$dir/password")]" >"$dir/format.log" 2>&1 ||
        fail "formatting failed: see $dir/format.log"
    touch "$dir/formatted"
}

start() {
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    command -v java >/dev/null || fail "Java is not installed"
    fetch
    if ! running >/dev/null; then
        if [ ! -f "$dir/formatted" ]; then
            rm -rf "$dir/data"
            configure
        fi
        : >"$dir/broker.log"
        local options=(-Xmx256m -XX:+UseSerialGC)
        [ "${SERVERS_FOR:-tests}" = load ] || options+=(-XX:TieredStopAtLevel=1)
        setsid java -cp "$lib/*" "${options[@]}" \
            -Dlog4j2.configurationFile="$dir/log4j2.properties" \
            kafka.Kafka "$dir/server.properties" >>"$dir/broker.log" 2>&1 </dev/null &
        echo $! >"$dir/pid"
    fi
    local address deadline
    address=$(cat "$dir/address")
    deadline=$((SECONDS + ready_max))
    until grep -q "Kafka Server started" "$dir/broker.log" &&
        (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null; do
        # By its pid alone: one that was just started may not yet be the program that it will be.
        ! gone "$(cat "$dir/pid")" || fail "the broker stopped: $(grep -m 1 -E 'ERROR|FATAL|Exception' "$dir/broker.log") (see $dir/broker.log)"
        [ "$SECONDS" -lt "$deadline" ] || fail "not ready after $ready_max s: see $dir/broker.log"
        sleep 0.1
    done
    echo "ANAMNESIS_TEST_KAFKA=$address"
    echo "ANAMNESIS_TEST_KAFKA_SECURE=$(cat "$dir/address-secure")"
    echo "ANAMNESIS_TEST_KAFKA_SECRETS=$dir"
}

# end SIGNAL SECONDS: sends it and waits until the broker is gone.
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
