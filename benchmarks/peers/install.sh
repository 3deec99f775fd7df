#!/usr/bin/env bash
# Makes the environments of the gateways that `agentworld bench gateway --section peers` compares with, one each, as
# their dependencies do not go together: benchmarks/peers/install.sh [litellm] [rllm] [agentlightning]
# They are gigabytes; remove them with the folder.
set -euo pipefail
FOLDER="${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/agentworld/peers}"
declare -A PACKAGES=([litellm]="litellm[proxy]" [rllm]="rllm-model-gateway" [agentlightning]="agentlightning")
[ $# -gt 0 ] || set -- litellm rllm agentlightning
for name in "$@"; do
    package="${PACKAGES[$name]:?unknown: $name}"
    "${PYTHON:-python3}" -m venv "$FOLDER/$name"
    "$FOLDER/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$package" ||
        echo "$name could not be installed; its rows will be missing" >&2
done
