from __future__ import annotations

import subprocess
import sys
from xml.etree.ElementTree import parse

from kvgym.harness.tools.comparison import compare


def test_make_pictures__writes_svg_files_that_stand_alone(tmp_path, repo_root):
    data = {
        "name": "tiny",
        "workloads": [{"use": {"source": "gsp", "groups": 4, "prompts_per_group": 4, "lens": [64]}, "name": "gsp"}],
        "clusters": [{"use": {"workers": 2, "capacity_tokens": 500}, "name": "two"}],
        "routing": ["round_robin", "random"],
        "eviction": ["lru"],
        "seeds": 2,
    }
    folder = compare(data, tmp_path / "out", jobs=1).folder
    command = [sys.executable, repo_root / "scripts" / "make_pictures.py", folder, "--out", tmp_path / "pictures"]
    subprocess.run(command, cwd=repo_root, env={"PYTHONPATH": str(repo_root)}, check=True)
    names = {path.name: parse(path).getroot() for path in (tmp_path / "pictures").iterdir()}
    assert set(names) == {"p50_ratio.svg", "hit_rate.svg"}
    for root in names.values():
        tags = [item.tag.rpartition("}")[2] for item in root.iter()]
        assert tags[0] == "svg" and {"style", "title", "desc", "path"} <= set(tags)
    assert "Median latency relative to round_robin + lru" in "".join(names["p50_ratio.svg"].itertext())
