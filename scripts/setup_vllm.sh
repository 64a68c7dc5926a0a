#!/usr/bin/env bash
# Unpacks the Python files of two vLLM releases, whose schedulers the tests compare the engine with. Nothing of vLLM is
# installed or run on a GPU; its scheduler runs under the Python of scripts/setup_live.sh.
#
#   scripts/setup_vllm.sh DIR PYTHON    DIR/0.13.0 and DIR/0.33.0 are then what KVGYM_VLLM's tests read; PYTHON has SGLang
#
# Downloads 0.8 GB, keeps 0.1 GB. Does nothing if DIR is up to date. Where a download fails it says so, and those tests
# are skipped with that reason.
set -euo pipefail

[ $# -eq 2 ] || {
    echo "setup_vllm: expected the folder to make and a Python (for example .vllm .live/bin/python), got $#" >&2
    exit 1
}
dir=$1
python=$2
# What the releases import beside SGLang's own requirements; their versions are those that all of them accept.
extra=(cbor2==6.3.0 cachetools==8.0.2 py-cpuinfo==9.0.0 openai==2.25.0 openai-harmony==0.0.8 llguidance==1.9.1
    blake3==1.0.11 diskcache==5.6.3)

get() {
    local release=$1 wheels
    [ ! -d "$dir/$release" ] || return 0
    echo "setup_vllm: fetching vLLM $release for the tests of its scheduler" >&2
    wheels=$(mktemp -d)
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$wheels" "vllm==$release" &&
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$wheels/files" "${extra[@]}" &&
        "$python" - "$wheels" <<'EOF' && mkdir -p "$dir" && mv "$wheels/files" "$dir/$release"
import pathlib
import sys
import zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("vllm-*.whl")
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if name.endswith((".py", ".json")) or ".dist-info/" in name:
            files.extract(name, folder / "files")
EOF
    rm -rf "$wheels"
}

for release in 0.13.0 0.33.0; do
    get "$release" || echo "setup_vllm: vLLM $release could not be fetched; the tests with its scheduler are skipped" >&2
done
