"""Threads that share jobs: all are done on return, errors come through, and none is left."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from kvgym.backends.crew import Crew


def threads() -> int:
    return sum(thread.name == "kvgym-crew" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    before = threads()
    yield
    gc.collect()
    end = time.monotonic() + 20
    while threads() > before and time.monotonic() < end:
        time.sleep(0.001)
    assert threads() == before


@pytest.mark.parametrize("more", [0, 1, 3])
def test_do__each_job_once_in_a_thread_of_its_own(more):
    crew = Crew(more)
    for jobs in range(1, more + 2):
        for _ in range(50):
            seen: list[int] = []
            together = threading.Barrier(jobs)

            def job(seen=seen, together=together):
                together.wait(20)
                seen.append(threading.get_ident())

            crew.do([job] * jobs)
            assert len(set(seen)) == len(seen) == jobs
            assert threading.get_ident() in seen
    crew.close()


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_do__raises_what_a_job_raises_when_all_have_ended(wrong):
    crew, ended = Crew(2), []

    def job(number):
        if number == wrong:
            raise ZeroDivisionError(number)
        time.sleep(0.01)
        ended.append(number)

    for _ in range(2):
        ended.clear()
        with pytest.raises(ZeroDivisionError, match=str(wrong)):
            crew.do([lambda number=number: job(number) for number in range(3)])
        assert sorted(ended) == [number for number in range(3) if number != wrong]
    crew.do([lambda: ended.append(3)] * 3)
    assert ended[-3:] == [3, 3, 3]
    crew.close()


def test_do__after_ctrl_c_while_it_waited():
    crew, ended = Crew(1), []
    go_on = threading.Event()

    def late():
        go_on.wait(20)
        ended.append("late")

    class Interrupted:
        """A lock whose acquisition is interrupted once."""

        def __init__(self, lock):
            self.lock, self.release, self.times = lock, lock.release, 0

        def acquire(self):
            self.times += 1
            if self.times == 1:
                raise KeyboardInterrupt
            return self.lock.acquire()

    (post,) = crew._posts
    post._done = Interrupted(post._done)
    with pytest.raises(KeyboardInterrupt):
        crew.do([lambda: None, late])
    go_on.set()
    crew.do([lambda: None, lambda: ended.append("next")])
    assert ended == ["late", "next"]
    crew.close()


def test_forgotten__its_threads_end():
    crew = Crew(2)
    crew.do([lambda: None] * 3)
    assert threads() >= 2
    del crew
