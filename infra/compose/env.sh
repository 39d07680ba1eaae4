#!/usr/bin/env bash
# Draws the passwords and keys of docker-compose.yml. To be run once and kept: without the master key
# nothing that was remembered can be read.
#
#   infra/compose/env.sh > .env
set -euo pipefail
umask 077

# hex BYTES: so many random bytes, in hexadecimal digits.
hex() {
    od -An -N"$1" -tx1 -v /dev/urandom | tr -d ' \n'
}

for name in ANAMNESIS_SHARD_TOKEN ANAMNESIS_TOKEN POSTGRES_PASSWORD NEO4J_PASSWORD QDRANT_API_KEY \
    GRAFANA_PASSWORD; do
    echo "$name=$(hex 24)"
done
echo "ANAMNESIS_MASTER_KEY=$(hex 32)"
