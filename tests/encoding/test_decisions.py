from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kvgym.encoding.decisions import REQUEST_FEATURES, WORKER_FEATURES, encode, feature_table, observation_space
from kvgym.types import Decision

WORKER = {name: i for i, (name, *_) in enumerate(WORKER_FEATURES)}
REQUEST = {name: i for i, (name, *_) in enumerate(REQUEST_FEATURES)}


def decision(workers: int = 2, **changes: object) -> Decision:
    zeros = np.zeros(workers, np.int64)
    plain = Decision(
        time_s=0.0, request=0, node=1, prompt_tokens=1000, prompt_chars=4000, max_new_tokens=0, session=0, turn=0,
        priority=0, inflight=zeros, inflight_tokens=zeros, running=zeros, queued=zeros, kv_used_tokens=zeros,
        kv_capacity_tokens=zeros + 4000, mask=np.ones(workers, bool),
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def test_encode__values_computed_by_hand():
    observation = encode(
        decision(
            prompt_tokens=999,
            max_new_tokens=2**20,
            turn=15,
            inflight=np.array([0, 63]),
            inflight_tokens=np.array([1000, 2**24]),
            running=np.array([4096, 0]),
            queued=np.array([0, 1]),
            kv_used_tokens=np.array([3000, 4000]),
            hit_tokens=np.array([0, 333]),
        )
    )
    request, workers = observation["request"], observation["workers"]
    assert request[REQUEST["prompt"]] == pytest.approx(np.log(1000) / np.log(2**20 + 1))
    assert request[REQUEST["prompt_share"]] == pytest.approx(999 / 4000)
    assert request[REQUEST["max_new"]] == 1
    assert request[REQUEST["turn"]] == pytest.approx(np.log(16) / np.log(257))
    assert workers[:, WORKER["inflight"]] == pytest.approx([0, np.log(64) / np.log(4097)])
    assert workers[:, WORKER["inflight_tokens"]] == pytest.approx([np.log(1001) / np.log(2**24 + 1), 1])
    assert workers[:, WORKER["inflight_share"]] == pytest.approx([0.25, 1])
    assert workers[:, WORKER["running"]] == pytest.approx([1, 0])
    assert workers[:, WORKER["queued"]] == pytest.approx([0, np.log(2) / np.log(4097)])
    assert workers[:, WORKER["kv_used"]] == pytest.approx([0.75, 1])
    assert workers[:, WORKER["capacity"]] == pytest.approx([np.log(4001) / np.log(2**24 + 1)] * 2)
    assert workers[:, WORKER["hit"]] == pytest.approx([0, 1 / 3])
    assert workers[:, WORKER["miss"]] == pytest.approx(np.log([1000, 667]) / np.log(2**20 + 1))


@pytest.mark.parametrize("workers", [1, 4, 100])
def test_encode__stays_in_its_space_when_everything_overflows(workers):
    huge = np.full(workers, 2**40, np.int64)
    space = observation_space(workers)
    zeros = np.zeros(workers, np.int64)
    for case in (
        decision(workers),
        decision(workers, prompt_tokens=0, kv_capacity_tokens=zeros),
        decision(workers, prompt_tokens=2**30, max_new_tokens=2**30, turn=2**30, inflight=huge, inflight_tokens=huge,
                 running=huge, queued=huge, kv_used_tokens=huge, kv_capacity_tokens=zeros + 1, hit_tokens=huge),
    ):  # fmt: skip
        observation = encode(case)
        assert space.contains(observation)
        assert {array.dtype for array in observation.values()} == {np.dtype(np.float32)}


def test_encode__a_worker_row_does_not_depend_on_the_other_workers():
    load = np.array([3, 700, 20])
    three = encode(decision(3, inflight=load, kv_used_tokens=load, hit_tokens=load))["workers"]
    one = encode(decision(1, inflight=load[1:2], kv_used_tokens=load[1:2], hit_tokens=load[1:2]))["workers"]
    assert three[1].tolist() == one[0].tolist()


def test_encode__unknown_hits_read_as_nothing_held():
    unknown, nothing = encode(decision(hit_tokens=None)), encode(decision(hit_tokens=np.zeros(2, np.int64)))
    assert unknown["workers"].tolist() == nothing["workers"].tolist()


def test_encode__returns_new_arrays():
    case = decision()
    first = encode(case)
    first["workers"][:] = 7
    first["request"][:] = 7
    assert observation_space(2).contains(encode(case))


def test_feature_table__has_a_row_per_feature_with_unique_names():
    rows = feature_table().splitlines()[2:]
    assert len(rows) == len(REQUEST) + len(WORKER) == len(REQUEST_FEATURES) + len(WORKER_FEATURES)
    assert rows[0].startswith("| request | 0 | prompt |")
    assert rows[-1].startswith(f"| workers | {len(WORKER_FEATURES) - 1} | miss |")


def test_encode__what_is_not_reported_reads_0():
    blind = encode(decision(running=None, queued=None, kv_used_tokens=None, inflight=np.array([3, 9])))
    zero = encode(decision(inflight=np.array([3, 9])))
    assert observation_space(2).contains(blind)
    assert (blind["workers"] == zero["workers"]).all() and (blind["request"] == zero["request"]).all()
