#!/usr/bin/env bash
# Makes a small environment with SGLang's own RadixCache, the truth that tests/differential compares with.
#
#   scripts/setup_oracle.sh DIR       DIR/bin/python is then what KVGYM_ORACLE_PYTHON should name
#
# About 40 seconds and 1.1 GB; Linux on x86-64, Python 3.11 to 3.13 (PYTHON names another interpreter than python3).
# Does nothing if DIR is up to date. pip's usual variables (PIP_INDEX_URL, PIP_FIND_LINKS ...) choose the index.
set -euo pipefail

fail() {
    echo "setup_oracle: $*" >&2
    exit 1
}

[ $# -eq 1 ] || fail "expected one argument, the folder to make (for example .oracle), got $#"
dir=$1
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
requirements=$root/scripts/oracle-requirements.txt
stamp=$dir/.kvgym-oracle

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' ||
    fail "$python is $("$python" -V 2>&1); SGLang's wheels need Python 3.11 to 3.13: set PYTHON to one of them"
want=$("$python" -VV | cat - "$requirements")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$dir/bin/python" ]; then
    exit 0
fi
if [ -e "$dir" ] && [ ! -f "$dir/pyvenv.cfg" ] && [ -n "$(ls -A "$dir")" ]; then
    fail "$dir exists and is no virtual environment; name a new folder"
fi

echo "setup_oracle: installing SGLang's RadixCache into $dir (about 40 s)" >&2
"$python" -m venv --clear "$dir"
# Nothing is compiled here: the first import below compiles the few modules that are ever used.
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r "$requirements" ||
    fail "pip could not install $requirements; its message is above"
answer=$(echo '{"do": "operations", "page_size": 1, "policy": "lru", "sequences": [[5, 6]],
    "operations": [["insert", 0, 2, 0, 0], ["match", 0, 2], ["evict", 1]]}' | tr -d '\n' |
    env -u PYTHONDONTWRITEBYTECODE "$dir/bin/python" -W ignore "$root/tests/differential/oracle_server.py" | tail -n 1) ||
    fail "SGLang does not import, see above; a message about CUDA means that pip found no CPU build of torch: point" \
        "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to one"
[ "$answer" = "[[0, 2, 0, 2], [2, 2, 0, 2], [2, 0, 0, 0]]" ] || fail "SGLang's cache gave an unexpected answer: $answer"
printf '%s\n' "$want" >"$stamp"
