#!/usr/bin/env bash
# The examples for containers against the schemas of compose and Kubernetes, which two Python packages bring along.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=${CARGO_TARGET_DIR:-target}/schemas
export PYTHONPATH=$modules
python3 -c 'import check_jsonschema, kubernetes_validate' 2>/dev/null ||
    python3 -m pip install --quiet --no-compile --disable-pip-version-check --target "$modules" --upgrade check-jsonschema kubernetes-validate \
        </dev/null >/dev/null 2>&1 || { echo "skipped: examples: no schemas from the network" && exit 0; }
python3 -m check_jsonschema --builtin-schema vendor.compose-spec contrib/oci/compose.yaml
python3 - contrib/oci/kubernetes.yaml <<'PYTHON'
import sys, yaml, kubernetes_validate
for resource in yaml.safe_load_all(open(sys.argv[1])):
    kubernetes_validate.validate(resource, "1.31", strict=True)
    print("ok:", resource["kind"], resource["metadata"]["name"])
PYTHON
