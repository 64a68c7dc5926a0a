from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from kvgym.harness.compare.results import read_results
from kvgym.harness.report.page import make_page, write_page
from kvgym.harness.tools.comparison import compare

GSP = {"source": "gsp", "groups": 8, "prompts_per_group": 4, "lens": [64, 128]}
NASTY = "<script>alert(1)</script>\"'&"


class Always:
    """Sends everything to worker 0."""

    concentrates = "it is a test"

    def reset(self, spec, seed):
        pass

    def act(self, decision):
        return 0

    def observe(self, records):
        pass


class Tags(HTMLParser):
    """Collects start tags, their attributes and the text."""

    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = {
        "name": f"tiny {NASTY}".replace("/", ""),
        "notes": NASTY,
        "workloads": [{"use": GSP, "name": NASTY}],
        "clusters": [{"use": {"workers": 3, "capacity_tokens": 1000}, "name": "three"}],
        "routing": ["round_robin", {"use": f"{__name__}:Always", "name": NASTY}],
        "eviction": ["lru", "rlt"],
        "seeds": 2,
    }
    return compare(data, tmp_path_factory.mktemp("page") / "out", jobs=1).folder


@pytest.fixture
def page(folder):
    parsed = Tags()
    parsed.feed((folder / "report.html").read_text())
    assert parsed.open == []
    return parsed


def test_page__is_self_contained(page, folder):
    text = (folder / "report.html").read_text()
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    links = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("href", "src", "data")]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|@font-face", text)
    assert not any(key.startswith("on") for _, attrs in page.tags for key in attrs)


def test_page__user_text_is_text(page):
    assert NASTY in page.text and f"{NASTY} on three" in page.text
    assert ("tiny <script>alert(1)<script>\"'&" in "".join(page.text)) is True


def test_page__has_every_plot_with_words_for_it(page):
    captions = [
        text for text in page.text if text in ("Median latency", "Hit rate", "Waiting requests", "KV cache in use")
    ]
    assert {name: captions.count(name) for name in captions} == {
        "Median latency": 2,  # the caption and the title inside the picture
        "Hit rate": 2,
        "Waiting requests": 8,
        "KV cache in use": 8,
    }
    assert sum(tag == "svg" for tag, _ in page.tags) == 3 + 2 * 2 + 2 + 2 * 4
    svgs = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert all(attrs["role"] == "img" for attrs in svgs)
    assert sum(tag == "desc" for tag, _ in page.tags) == len(svgs)


def test_page__flags_and_origin(page):
    text = "".join(page.text)
    assert "100.0% of the requests went to one worker while another idled 100% of the time (seeds 0, 1)" in text
    assert "its rule allows that: it is a test" in text
    assert "version of numpy" in text and '"prompts_per_group": 4' in text


def test_page__the_same_results_give_the_same_bytes(folder, tmp_path):
    assert write_page(read_results(folder), tmp_path / "again.html") == tmp_path / "again.html"
    assert (tmp_path / "again.html").read_bytes() == (folder / "report.html").read_bytes()


def test_page__without_samples_and_with_missing_runs(folder, tmp_path):
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(copy / "samples")
    sorted((copy / "records").glob("*.json"))[0].unlink()
    text = make_page(read_results(copy))
    assert "No load samples in this folder." in text and "KV cache in use" not in text
    assert "Not finished" in text and "no result of seed 0" in text
