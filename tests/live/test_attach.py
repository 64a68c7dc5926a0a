"""Attaching to servers that want an API key; the first file, as its servers are those of the tests after it."""

from __future__ import annotations

from typing import Any

import pytest

from kvgym.backends.sglang import pool
from kvgym.errors import BackendError, ConfigError
from kvgym.types import DONE

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(600)]


def test_wrong_key__ends_the_run_and_names_the_server(
    make_cluster: Any, open_backend: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [server.url for server in pool.acquire(make_cluster(page_size=16), "lru")]
    attached = make_cluster(page_size=16, urls=urls[::-1])
    workload = tools.text_workload([[7] * 50] * 4, [4] * 4, page_size=16)
    records = tools.play(open_backend(workload, attached, "lru", 0), lambda decision: decision.request % 2)
    assert (records["status"] == DONE).all()
    assert records["worker"].tolist() == [0, 1, 0, 1]
    monkeypatch.setenv(attached.live.api_key_variable, "wrong")
    with pytest.raises(BackendError, match=rf"{urls[1]}.*live\.api_key_variable"):
        open_backend(workload, attached, "lru", 0)
    monkeypatch.delenv(attached.live.api_key_variable)
    with pytest.raises(ConfigError, match="'KVGYM_TEST_KEY', which is not set"):
        open_backend(workload, attached, "lru", 0)


def test_other_page_size__is_named(make_cluster: Any) -> None:
    urls = [server.url for server in pool.acquire(make_cluster(page_size=16), "lru")]
    cluster = make_cluster(page_size=32, urls=urls)
    with pytest.raises(ConfigError, match=rf"{urls[0]} has pages of 16 tokens, the cluster 32"):
        pool.acquire(cluster, "lru")
