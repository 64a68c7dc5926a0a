#!/usr/bin/env bash
# Makes an environment with a real SGLang 0.5.23 that serves on the CPU, its router, this kvgym and a tiny model.
#
#   scripts/setup_live.sh DIR       DIR/bin/python is then what KVGYM_LIVE_PYTHON should name; the model is DIR/model
#
# About a minute and 2.8 GB; Linux on x86-64, Python 3.11 to 3.13 (PYTHON names another interpreter than python3).
# Does nothing if DIR is up to date. pip's usual variables (PIP_INDEX_URL, PIP_FIND_LINKS ...) choose the index.
# On a machine with GPUs this is not needed: pip install kvgym[live] sglang==0.5.23.
set -euo pipefail

fail() {
    echo "setup_live: $*" >&2
    exit 1
}

[ $# -eq 1 ] || fail "expected one argument, the folder to make (for example .live), got $#"
dir=$1
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
requirements=$root/scripts/live-requirements.txt
stamp=$dir/.kvgym-live

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' ||
    fail "$python is $("$python" -V 2>&1); SGLang's wheels need Python 3.11 to 3.13: set PYTHON to one of them"
want=$("$python" -VV | cat - "$requirements" "$root/pyproject.toml" "$root/scripts/make_tiny_model.py" \
    "$root/scripts/live_standins/kvgym_standins.py")
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$dir/bin/python" ]; then
    exit 0
fi
if [ -e "$dir" ] && [ ! -f "$dir/pyvenv.cfg" ] && [ -n "$(ls -A "$dir")" ]; then
    fail "$dir exists and is no virtual environment; name a new folder"
fi

echo "setup_live: installing SGLang for the CPU into $dir (about a minute)" >&2
"$python" -m venv --clear "$dir"
pip() {
    "$dir/bin/python" -m pip "$@" --quiet --disable-pip-version-check
}
pip install -r "$requirements" || fail "pip could not install $requirements; its message is above"
# Without their dependencies: SGLang's own list brings CUDA.
pip install --no-deps sglang==0.5.23 sglang-router==0.3.2 || fail "pip could not install SGLang; its message is above"
pip install --no-deps --editable "$root" || fail "pip could not install kvgym; its message is above"
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$root/scripts/live_standins/kvgym_standins.py" "$site/"
echo 'import kvgym_standins' >"$site/kvgym_standins.pth"
"$dir/bin/python" "$root/scripts/make_tiny_model.py" "$dir/model"
# The first import also compiles SGLang's modules, which halves the start of a server.
SGLANG_USE_CPU_ENGINE=1 env -u PYTHONDONTWRITEBYTECODE "$dir/bin/python" -W ignore -c 'import sglang.launch_server' ||
    fail "SGLang does not import, see above; a message about CUDA means that pip found no CPU build of torch: point" \
        "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to one"
printf '%s\n' "$want" >"$stamp"
