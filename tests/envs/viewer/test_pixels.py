from __future__ import annotations

import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from kvgym.envs.routing import RoutingEnv
from kvgym.envs.viewer import pixels
from kvgym.envs.viewer.palette import colour
from kvgym.envs.viewer.pixels import HEIGHT, WIDTH, draw_pixels
from kvgym.errors import MissingDependencyError

pytest.importorskip("PIL")
TINY = {"source": "gsp", "groups": 4, "prompts_per_group": 5, "lens": [64], "rate_rps": 30.0}


@pytest.mark.parametrize("workers", [1, 4, 10, 15, 100, pixels._MOST + 1])
def test_image__has_one_size_whatever_the_fleet(busy, workers):
    image = draw_pixels(busy(workers, steps=20))
    assert (image.shape, image.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)


@pytest.mark.parametrize("workers", [1, 3, 14, 15, 100, 1000, pixels._MOST])
def test_cells__lie_in_the_image_and_do_not_overlap(workers):
    cells, taken = pixels._cells(workers), np.zeros((HEIGHT, WIDTH), int)
    assert len(cells) == workers
    for x, y, width, height in cells:
        assert width > 0 and height > 0
        taken[y : y + height, x : x + width] += 1
    assert taken.max() == 1 and taken.sum() == sum(cell.width * cell.height for cell in cells)


def test_image__shows_the_cached_prefixes_and_the_load(busy, contains):
    frame = busy(4)
    image = draw_pixels(frame)
    wide = {kind for worker in range(4) for start, stop, kind in frame.cache_parts(worker, 500)}
    assert len(wide) > 5 and all(contains(image, colour(kind)) for kind in wide)
    assert contains(image, pixels._QUEUED) and contains(image, pixels._CHOSEN)


def test_image__highlights_only_the_worker_of_the_last_decision(busy):
    frame = busy(4)
    cells = pixels._cells(4)
    for chosen in (0, 2):
        image = draw_pixels(replace(frame, worker=chosen))
        for worker, (x, y, _, height) in enumerate(cells):
            assert (tuple(image[y + height // 2, x - 3]) == pixels._CHOSEN) == (worker == chosen)


def test_image__before_the_first_decision_highlights_nothing(busy, contains):
    assert not contains(draw_pixels(busy(4, steps=0)), pixels._CHOSEN)


def test_image__strikes_out_a_worker_that_is_down(busy, contains):
    assert not contains(draw_pixels(busy(4)), pixels._DOWN)
    assert contains(draw_pixels(busy(4, down=(2,))), pixels._DOWN)


def test_image__is_the_same_each_time(busy):
    assert (draw_pixels(busy(4)) == draw_pixels(busy(4))).all()


def test_without_pillow__the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.ImageDraw", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kvgym\[render\]'"):
        RoutingEnv(TINY, render_mode="rgb_array")


def test_record_video__writes_a_film_of_the_episode(tmp_path):
    pytest.importorskip("moviepy")
    from moviepy import VideoFileClip

    env = gymnasium.make("kvgym/Routing-v0", workload=TINY, cluster={"workers": 3}, render_mode="rgb_array")
    env = gymnasium.wrappers.RecordVideo(env, str(tmp_path / "film"))
    env.reset(seed=0)
    frames = [env.unwrapped.render()]
    terminated = False
    while not terminated:
        terminated = env.step(len(frames) % 3)[2]
        frames.append(env.unwrapped.render())
    env.close()
    (path,) = (tmp_path / "film").glob("*.mp4")
    with VideoFileClip(str(path)) as film:
        assert (film.size, film.fps) == ([WIDTH, HEIGHT], env.metadata["render_fps"])
        assert film.duration == pytest.approx(len(frames) / film.fps)
        for i in (0, 9, 19):
            seen = film.get_frame((i + 0.5) / film.fps).astype(int)
            assert np.abs(seen - frames[i]).mean() < np.abs(seen - frames[i - 5 if i else 5]).mean()
