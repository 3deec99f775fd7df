#!/usr/bin/env bash
# Makes the environments of the gateways that `agentworld bench gateway --section peers` compares with, one each, as
# their dependencies do not go together: benchmarks/peers/install.sh [litellm] [rllm] [agentlightning]
# NAME.txt beside this file locks what comes into each. They are gigabytes; remove them with the folder.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
FOLDER="${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/agentworld/peers}"
[ $# -gt 0 ] || set -- litellm rllm agentlightning
for name in "$@"; do
    [ -f "$HERE/$name.txt" ] || { echo "unknown: $name; known are litellm, rllm and agentlightning" >&2; exit 2; }
    "${PYTHON:-python3}" -m venv "$FOLDER/$name"
    "$FOLDER/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$HERE/$name.txt" ||
        echo "$name could not be installed; its rows will be missing" >&2
done
