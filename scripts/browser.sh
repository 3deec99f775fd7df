#!/usr/bin/env bash
# What the tests of the page need: playwright in the virtual environment and Chromium on the path (CHROMIUM names another).
set -euo pipefail
: "${VENV:=.venv}"

"$VENV/bin/python" -c 'import playwright' 2> /dev/null ||
    "$VENV/bin/python" -m pip install --quiet 'playwright>=1.45,<2'
[ -z "${CHROMIUM:-}" ] || exit 0
command -v chromium > /dev/null || command -v chromium-browser > /dev/null || {
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        echo "browser: installing Chromium"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null
    else
        echo "There is no Chromium here. Install one (Debian: apt-get install chromium), or set CHROMIUM to its path" >&2
        exit 1
    fi
}
