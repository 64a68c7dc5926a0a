#!/bin/sh
# Provides headless Chromium for the tests of the report's page: scripts/setup_chromium.sh
# Installs Debian's package where that is possible without questions; else says why, and those tests are skipped.
set -eu

if command -v chromium >/dev/null; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup_chromium: no chromium, and no root with apt-get to install it; the page's browser tests are skipped"
    exit 0
fi
echo "setup_chromium: installing the system packages chromium and fonts-dejavu-core (apt-get) for the browser tests"
log=$(mktemp)
if (
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium fonts-dejavu-core
) >"$log" 2>&1; then
    rm "$log"
else
    echo "setup_chromium: apt-get failed ($(tail -n 1 "$log")); the page's browser tests are skipped"
    rm "$log"
fi
