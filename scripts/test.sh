#!/usr/bin/env bash
# Runs all tests, those with real servers beside the others: servers wait more than they compute.
#
#   scripts/test.sh PYTHON [OPTION ...]    PYTHON has kvgym's dev extra; KVGYM_LIVE_PYTHON names the one that has
#                                          SGLang; options are pytest's, for both halves (--soak)
#
# Shows the others first, then those with servers; fails if either does.
set -u
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "test.sh: expected a Python interpreter and options of pytest, got nothing" >&2; exit 1; }
python=$1
shift

shown=$(mktemp)
"$python" -m pytest -ra -m live "$@" >"$shown" 2>&1 &
servers=$!
"$python" -m pytest -ra -n 2 --dist worksteal -m "not live" "$@" &
others_run=$!
# Both in the background: a trap would wait for what runs in front. What is killed leaves no server behind: a watchdog
# of kvgym's stops them.
trap 'kill "$servers" "$others_run" 2>/dev/null; rm -f "$shown"' EXIT
trap 'exit 130' INT TERM

wait "$others_run"
others=$?
echo "Tests with real servers:"
tail --pid="$servers" --lines=+1 --follow "$shown" &
wait $!
wait "$servers"
live=$?
[ "$others" -eq 0 ] && [ "$live" -eq 0 ]
