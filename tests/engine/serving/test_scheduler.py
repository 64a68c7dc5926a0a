"""SGLang's batching rules on cases small enough to follow by hand (costs: see conftest)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvgym.engine.pages import RATIO_INIT, RATIO_MIN
from kvgym.engine.state import DECIDE
from kvgym.types import DONE, REJECTED


def row(*path: list[Any], **fields: Any) -> dict[str, Any]:
    return {"path": list(path), **fields}


@pytest.mark.parametrize(("prompt", "hit"), [(1300, 1024), (2000, 1536), (1536, 1535)])
def test_chunks__a_twin_reuses_what_was_inserted_before_its_admission(
    build: Any, drain: Any, prompt: int, hit: int
) -> None:
    """As a live SGLang with chunks of 512 answers a twin that arrives during the first chunk."""
    rows = [row(["a", prompt]), row(["a", prompt], arrival_s=10.0)]
    records = drain(build(rows, capacity=10_000, chunk=512))
    assert list(records["hit_tokens"]) == [0, hit]


def test_chunks__a_prompt_is_cut_at_a_page_boundary_and_continues_first(build: Any, drain: Any) -> None:
    """Chunk 32, page 16: 32, 32 and 2 of 66 tokens; the short prompt behind joins the third batch."""
    rows = [row(["a", 66]), row(["b", 3])]
    records = drain(build(rows, capacity=160, page=16, chunk=32))
    assert list(records["admitted_s"]) == [0.0, 18.0]
    assert list(records["first_token_s"]) == [18.0 + 1 + 0.25 * 5] * 2


def test_chunks__max_prefill_tokens_bounds_a_batch(build: Any, drain: Any) -> None:
    rows = [row(["a", 6]), row(["b", 6]), row(["c", 6])]
    assert list(drain(build(rows, prefill=10))["admitted_s"]) == [0.0, 0.0, 4.0]
    assert list(drain(build(rows, prefill=100))["admitted_s"]) == [0.0, 0.0, 0.0]


def test_chunks__spent_with_no_memory_left_shuts_admission(build: Any, drain: Any) -> None:
    """Pages of 16: the last 5 tokens of request 1 spend the chunk and, rounded up, all memory that is not reserved.

    SGLang tries the next in line all the same, in vain, and then lets nobody in until somebody leaves, although
    request 2 would fit one pass later.
    """
    rows = [row(["a", 1], output_tokens=20), row(["b", 21], output_tokens=64, arrival_s=0.5)]
    rows.append(row(["c", 1], output_tokens=2, arrival_s=0.5))
    for capacity, waits in ((128, True), (144, False)):
        engine = build(rows, capacity=capacity, page=16, chunk=16, ignore_eos=0)
        engine.cache.workers["ratio"] = RATIO_MIN
        records = np.sort(drain(engine), order="request")
        assert records["first_token_s"][1] == 8.5
        assert records["admitted_s"][2] == (records["finish_s"][0] if waits else 8.5)


def test_admission__is_first_come_first_served(build: Any, drain: Any) -> None:
    """The 16k prompt does not fit beside what runs: it waits, nobody overtakes it, everybody is served."""
    rows = [row([f"a{i}", 1500], output_tokens=60, arrival_s=float(i)) for i in range(4)]
    rows += [row(["big", 16_000], output_tokens=10, arrival_s=5.0)]
    rows += [row([f"b{i}", 1500], output_tokens=60, arrival_s=6.0 + i) for i in range(4)]
    records = np.sort(drain(build(rows, capacity=20_000)), order="request")
    assert (records["status"] == DONE).all() and not records["retractions"].any()
    assert records["admitted_s"][4] >= np.sort(records["finish_s"][:4])[1]  # 17,500 tokens fit beside two of the four
    assert (np.diff(records["admitted_s"]) >= 0).all()
    assert (records["output_tokens"] == [60] * 4 + [10] + [60] * 4).all()


def test_admission__throughput_saturates_at_the_pool(build: Any, drain: Any) -> None:
    """The pool holds 68 requests; with 1,024 in flight the rest waits and throughput stays what it was with 200."""
    rows = [row([f"a{i}", 100], output_tokens=28) for i in range(1500)]
    finished, most = {}, {}
    for clients in (17, 200, 1024):
        records = drain(build(rows, capacity=68 * 130, clients=clients, check=0, p_tok=0.001, d_seq=0, d_kvtok=0))
        assert (records["status"] == DONE).all() and not records["retractions"].any()
        finished[clients] = float(records["finish_s"][-1])
        times = np.concatenate([records["admitted_s"], records["finish_s"]])
        change = np.repeat([1, -1], len(records))[np.lexsort((np.repeat([1, 0], len(records)), times))]
        most[clients] = int(np.cumsum(change).max())
    assert most == {17: 17, 200: 68, 1024: 68}
    assert finished[1024] == pytest.approx(finished[200], rel=0.02)
    assert finished[17] > 2 * finished[1024]


def test_admission__a_prompt_that_never_fits_is_rejected_and_the_rest_goes_on(build: Any, drain: Any) -> None:
    """A pool of 100 takes prompts of 94 tokens, as a pool of 4,096 takes 4,090."""
    rows = [row(["a", 94]), row(["b", 95], session="s"), row(["c", 20], session="s", think_s=1.0), row(["d", 10])]
    records = np.sort(drain(build(rows, capacity=100)), order="request")
    assert list(records["status"]) == [DONE, REJECTED, DONE, DONE]
    assert (records["admitted_s"][1], records["first_token_s"][1], records["output_tokens"][1]) == (-1.0, -1.0, 0)
    assert records["arrival_s"][2] == 1.0  # the next turn follows a rejection, too


def test_admission__limits_an_answer_to_what_fits(build: Any, drain: Any) -> None:
    """An empty pool of 100 has room for a prompt of 50 in 50 tokens, 48 of an answer and one of margin."""
    records = drain(build([row(["a", 50], output_tokens=90)], capacity=100))
    assert list(records["output_tokens"]) == [48]


def test_admission__max_running_bounds_the_batch(build: Any, drain: Any) -> None:
    rows = [row([f"a{i}", 4], output_tokens=3) for i in range(5)]
    records = np.sort(drain(build(rows, max_running=2)), order="request")
    assert list(records["admitted_s"][:2]) == [0.0, 0.0]
    assert list(records["admitted_s"][2:4]) == [records["finish_s"][0]] * 2
    assert records["admitted_s"][4] == records["finish_s"][2]


@pytest.mark.parametrize(("ignore_eos", "in_full", "waits"), [(1, 1, True), (0, 1, False), (1, 0, False)])
def test_admission__reserves_for_running_requests(
    build: Any, drain: Any, ignore_eos: int, in_full: int, waits: bool
) -> None:
    """Request 0 may still generate 99 tokens: reserved in full, or times .7 (SGLang's first new-token ratio).

    Request 1 needs 10 + 10 + 1 of the 115 - 5 - 1 free ones: 10 in the first case, 39 in the second.
    """
    rows = [row(["a", 5], output_tokens=100), row(["b", 10], output_tokens=10, arrival_s=2.0)]
    engine = build(rows, capacity=115, ignore_eos=ignore_eos, in_full=in_full)
    records = np.sort(drain(engine), order="request")
    assert records["admitted_s"][1] == (records["finish_s"][0] if waits else 2.25)


@pytest.mark.parametrize(("mixed", "finish_s"), [(0, [5.75, 5.75]), (1, [5.25, 5.875])])
def test_mixed_chunk__running_requests_decode_in_prefill_steps(
    build: Any, drain: Any, mixed: int, finish_s: list[float]
) -> None:
    """Request 0 is prefilled until 2 s (1 + 4 x .25), then request 1, 8 tokens in 3 s alone.

    Apart: a decode of both, .5 + 2 x .125, ends at 5.75. Mixed: a step of 8 + 1 tokens ends request 0 at 5.25, a decode
    of one, .625 s, request 1. Contexts cost nothing here.
    """
    rows = [row(["a", 4], output_tokens=2), row(["b", 8], output_tokens=2, arrival_s=1.0)]
    records = np.sort(drain(build(rows, mixed_chunk=mixed, d_kvtok=0, mix_kvtok=0)), order="request")
    assert list(records["finish_s"]) == finish_s


@pytest.mark.parametrize(("prompts", "victim"), [((8, 8), 2), ((9, 8), 1)])
def test_retraction__takes_fewest_generated_then_longest_prompt_then_last(
    build: Any, drain: Any, prompts: tuple[int, int], victim: int
) -> None:
    """After 8 steps of three requests 2 of 46 tokens are free; the victim comes back with its 9 tokens and finishes."""
    rows = [row(["a", 4], output_tokens=30)]
    rows += [row([f"b{i}", n], output_tokens=10, arrival_s=0.5) for i, n in enumerate(prompts)]
    engine = build(rows, capacity=46, ignore_eos=0)
    engine.cache.workers["ratio"] = RATIO_MIN
    records = np.sort(drain(engine), order="request")
    assert list(np.flatnonzero(records["retractions"])) == [victim]
    assert list(records["output_tokens"]) == [30, 10, 10]
    assert records["finish_s"][victim] > records["finish_s"][3 - victim]
    assert (records["status"] == DONE).all()
    assert engine.cache.workers["prompted"][0] == 4 + sum(prompts)  # re-admissions are not counted again


@pytest.mark.parametrize(("page", "full", "evicted"), [(1, 0, 10), (1, 1, 50), (16, 0, 32), (16, 1, 64)])
def test_eviction__asks_for_the_shortfall_or_the_whole_demand(
    build: Any, drain: Any, page: int, full: int, evicted: int
) -> None:
    """60 tokens are cached in a pool of 100 and 50 are wanted; 4 pages of 6 are cached, 3 and one to spare wanted."""
    rows = [row(["a", 60 if page == 1 else 64]), row(["b", 50 if page == 1 else 48], arrival_s=50.0)]
    engine = build(rows, "rlt", 100 if page == 1 else 96, page=page, evict_full=full)
    drain(engine)
    assert engine.cache.workers["evicted"][0] == evicted


@pytest.mark.parametrize(("page", "hit"), [(1, 29), (16, 16)])
def test_turns__the_next_prompt_finds_the_answer_but_its_last_token(
    build: Any, drain: Any, page: int, hit: int
) -> None:
    """The last sampled token has no KV: 20 + 10 - 1 tokens are found, in whole pages."""
    rows = [row(["q", 20], session=1, output_tokens=10, answer="r")]
    rows += [row(["q", 20], ["r", 10], ["more", 7], session=1, think_s=2.5)]
    records = drain(build(rows, capacity=160, page=page))
    assert list(records["hit_tokens"]) == [0, hit]
    assert records["arrival_s"][1] == records["finish_s"][0] + 2.5


def test_ratio__falls_with_every_decode_step_and_is_reset_when_idle(build: Any) -> None:
    """From .7 to .098 in 600 steps. Request 1 is admitted after 10 steps, request 2 finds the server idle."""
    ten = 2.0 + sum(0.625 + (4 + k) / 64 for k in range(1, 11))
    rows = [row(["a", 4], output_tokens=31), row(["b", 4], arrival_s=ten), row(["c", 4], arrival_s=ten + 0.5)]
    engine = build([*rows, row(["d", 4], arrival_s=99.0)])
    ratios = []
    while engine.run() == DECIDE:
        ratios.append(float(engine.cache.workers["ratio"][0]))
        engine.route(0)
    fallen = RATIO_INIT - 10 * (RATIO_INIT - RATIO_MIN) / 600
    assert ratios == [RATIO_INIT, RATIO_INIT, pytest.approx(fallen), RATIO_INIT]  # a leap counts at its end


def test_ratio__is_reset_while_a_request_is_on_its_way(build: Any) -> None:
    """Request 0 ends at about 25 s; request 1 was sent shortly before and reaches the worker after it."""
    end = 2.0 + 0.25 + sum(0.625 + (4 + k) / 64 for k in range(1, 31))
    rows = [row(["a", 4], output_tokens=31), row(["b", 4], arrival_s=end - 0.125)]
    rows.append(row(["c", 4], arrival_s=end + 0.5))
    engine = build(rows, request_s=0.25, ignore_eos=0)
    ratios = []
    while engine.run() == DECIDE:
        ratios.append(float(engine.cache.workers["ratio"][0]))
        engine.route(0)
    assert ratios[2] == RATIO_INIT
