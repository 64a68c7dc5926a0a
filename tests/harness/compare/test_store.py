from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from kvgym.errors import ResultsError
from kvgym.harness.compare.store import Store, file_stem, read_manifest

MANIFEST = {"identity": "abc"}
HOLDER = """
import sys, time
from pathlib import Path
from kvgym.harness.compare.store import Store
with Store.claim(Path(sys.argv[1]), {"identity": "abc"}):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path, repo_root):
    """Another process that holds the folder."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(repo_root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_claim__one_process_at_a_time_and_a_dead_one_is_no_obstacle(tmp_path, holder):
    with pytest.raises(ResultsError, match=f"process {holder.pid} on .* is writing to .*choose another --out"):
        with Store.claim(tmp_path / "out", MANIFEST):
            pass
    holder.kill()
    holder.wait()
    owner = tmp_path / "out" / ".owner"
    assert owner.read_text().startswith(f"process {holder.pid} on "), "it had no time to clear away"
    with Store.claim(tmp_path / "out", MANIFEST) as store:
        assert store.records.is_dir()
        assert owner.read_text().startswith(f"process {os.getpid()} on ")
    assert not owner.exists()


def test_claim__is_given_back(tmp_path):
    for _ in range(2):
        with Store.claim(tmp_path, MANIFEST):
            pass
    assert not (tmp_path / ".owner").exists()


def test_claim__an_owner_without_a_name_still_keeps_others_out(tmp_path, holder):
    (tmp_path / "out" / ".owner").unlink()
    with pytest.raises(ResultsError, match="another process is writing to"):
        with Store.claim(tmp_path / "out", MANIFEST):
            pass


def test_claim__a_kill_at_any_point_leaves_a_folder_that_is_taken_up(tmp_path):
    (tmp_path / ".lock").write_text("1")
    (tmp_path / ".owner").write_text("process 1 on elsewhere")
    (tmp_path / ".manifest.json.1.tmp").write_text("{")
    with Store.claim(tmp_path, MANIFEST):
        pass
    (tmp_path / "records" / ".x.parquet.1.tmp").write_text("half")
    (tmp_path / "samples").rmdir()
    with Store.claim(tmp_path, MANIFEST):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "manifest.json", "records", "samples"]


def test_claim__leaves_a_foreign_folder_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(ResultsError, match="holds no manifest"):
        with Store.claim(tmp_path, MANIFEST):
            pass
    (tmp_path / "thesis.txt").rename(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text(json.dumps({"identity": "other"}))
    with pytest.raises(ResultsError, match="results of another run"):
        with Store.claim(tmp_path, MANIFEST):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_read_manifest__says_what_a_folder_is(tmp_path):
    with pytest.raises(ResultsError, match="nowhere is no folder; give the output folder of a `kvgym compare`"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(ResultsError, match=r"holds no manifest\.json; give the output folder"):
        read_manifest(tmp_path)


@pytest.fixture
def full_disk():
    """Let no file of this process grow beyond 20,000 bytes; what is written fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_save__a_full_disk_is_one_clear_error(tmp_path, kvgym, full_disk):
    (tmp_path / "tiny.yaml").write_text(
        "name: tiny\n"
        "workloads: [{use: {source: gsp, groups: 40, prompts_per_group: 40, lens: [64]}, name: gsp}]\n"
        "clusters: [{use: {workers: 2, capacity_tokens: 1000}, name: two}]\n"
        "routing: [round_robin]\neviction: [lru]\nseeds: 1\n"
    )
    assert kvgym("compare", "tiny.yaml", "--out", "before", "--jobs", "1")[0] == 0  # what numba caches is written here
    full_disk()
    code, out, err = kvgym("compare", "tiny.yaml", "--out", "out", "--jobs", "1")
    assert (code, out) == (2, "")
    message = r"error: cannot write out/records/gsp-two-round_robin-lru-\w+-s0\.parquet: .+"
    assert re.fullmatch(message, err.splitlines()[-1])
    assert not (tmp_path / "out").exists(), "what fails at once leaves nothing"


def test_file_stem__tells_runs_apart_and_is_a_safe_name():
    plains = ({"eviction": "lru"}, {"eviction": "rlt"})
    stems = {file_stem(("a/b: c", "x", "y", "z" * 300), plain, seed) for plain in plains for seed in (0, 1)}
    assert len(stems) == 4
    assert all(re.fullmatch(r"[\w.-]+", stem) and len(stem) < 200 for stem in stems)
