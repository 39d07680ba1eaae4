#!/usr/bin/env bash
# Checks what Prometheus is given: its configuration, its rules, and for each alert when it fires and when
# it stays quiet.
#
#   infra/prometheus/check.sh
#
# Needs promtool; where it is not installed, the package is unpacked by infra/servers/prometheus.sh.
set -euo pipefail
cd "$(dirname "$0")"

promtool=$(../servers/prometheus.sh tool promtool)
"$promtool" check config prometheus.yml
"$promtool" check rules rules/*.yml

# An alert that no scenario expects to fire may be one that never does.
for alert in $(sed -n 's/^ *- alert: //p' rules/*.yml); do
    if ! grep -q "alertname=\"$alert\"" tests/*.yml; then
        echo "check.sh: no scenario in tests/ makes $alert fire" >&2
        exit 1
    fi
done
"$promtool" test rules tests/*.yml
echo "$(grep -h '^ *- alert: ' rules/*.yml | wc -l) alerts, $(grep -h '^  - name: ' tests/*.yml | wc -l) scenarios"
