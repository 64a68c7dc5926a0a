"""What Chromium makes of the page: on a phone, on a desktop, on paper."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kvgym.harness.tools.comparison import compare

CHROMIUM = shutil.which("chromium")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync --hide-scrollbars"
PLOTS = 3 + 2 * 2 + 2 + 2 * 4
# Runs in the test's copy of the page only: reports what the browser has laid out.
PROBE = """<script>
const boxes = [...document.querySelectorAll("svg")].map((e) => e.getBoundingClientRect());
const page = document.documentElement;
parent.postMessage(JSON.stringify({
  width: innerWidth, overflow: page.scrollWidth - page.clientWidth, height: page.scrollHeight,
  drawn: boxes.filter((b) => b.width > 150 && b.height > 40).length,
  outside: boxes.filter((b) => b.left < 0 || b.right > innerWidth + 0.5).length,
  smallest_text: Math.min(...[...document.querySelectorAll("svg text")].map((e) => e.getBoundingClientRect().height)),
  scrolls: [...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth + 1).length,
}), "*");
</script></body>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: run scripts/setup_chromium.sh as root"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    gsp = {"source": "gsp", "groups": 16, "prompts_per_group": 16, "lens": [64, 128, 256]}
    data = {
        "name": "a_comparison_with_a_rather_long_name_that_does_not_fit_on_a_phone",
        "notes": "What the page is made for. " * 5,
        "workloads": [{"use": gsp, "name": "gsp"}],
        "clusters": [{"use": {"workers": 4, "capacity_tokens": 1500}, "name": "four"}],
        "routing": ["round_robin", {"use": "lbgr_release", "name": "a_router_with_a_name_of_forty_characters"}],
        "eviction": ["lru", "rlt_release"],
        "seeds": 2,
    }
    return compare(data, tmp_path_factory.mktemp("page") / "out", jobs=1).folder / "report.html"


def browse(folder: Path, page: Path, *options: str) -> str:
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def layout(folder: Path, page: Path, width: int) -> dict:
    """Return what PROBE found in a copy of the page that is `width` pixels wide."""
    (folder / "page.html").write_text(page.read_text().replace("</body>", PROBE))
    # A headless window cannot be made as narrow as a phone, a frame in it can.
    listen = "addEventListener('message', (e) => { document.title = e.data; });"
    frame = f'<iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>'
    (folder / "frame.html").write_text(f"<!doctype html><title></title><script>{listen}</script>{frame}")
    found = browse(folder, folder / "frame.html", "--dump-dom", f"--window-size={width + 40},1000")
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", found)[1]))


@pytest.mark.parametrize("width", [360, 1280])
def test_page__fits_phone_and_desktop(tmp_path, page, width):
    found = layout(tmp_path, page, width)
    assert (found["width"], found["overflow"], found["outside"]) == (width, 0, 0)
    assert found["drawn"] == PLOTS
    assert found["smallest_text"] >= 9, "letters must be readable"
    assert found["scrolls"] >= 1 if width == 360 else True, "wide tables scroll inside their box"


@pytest.mark.parametrize(("width", "height"), [(360, 800), (1280, 900)])
def test_page__screenshot_shows_dark_text_and_plots_on_a_light_page(tmp_path, page, width, height):
    size = f"--window-size={width},{height * 6}"
    browse(tmp_path, page, "--screenshot=shot.png", size, "--blink-settings=preferredColorScheme=1")
    with Image.open(tmp_path / "shot.png") as image:
        assert image.size == (width, height * 6)
        pixels = np.asarray(image.convert("RGB"), np.int64)
    grey = pixels.mean(axis=2)
    assert np.median(grey) > 240, "the paper is light"
    assert 0.005 < (grey < 90).mean() < 0.3, "there is text"
    blue = (pixels[..., 2] - pixels[..., 0] > 80).mean()
    assert blue > 0.002, "plots are drawn"
    # From top to bottom there is always something: no band of a screen's height is empty.
    busy = (grey < 200).any(axis=1)
    assert all(busy[i : i + height].any() for i in range(0, len(busy), height))


def test_page__prints_on_paper_without_cutting_plots(tmp_path, page):
    browse(tmp_path, page, "--print-to-pdf=page.pdf", "--no-pdf-header-footer")
    pdf = (tmp_path / "page.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-") and len(pdf) > 20_000
    assert 3 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 20
    boxes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([\d. ]+)\]", pdf)}
    assert all(abs(width - 842) < 2 and abs(height - 595) < 2 for _, _, width, height in boxes), "A4, landscape"
