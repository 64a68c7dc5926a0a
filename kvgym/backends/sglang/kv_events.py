"""KV events of live servers become rows over a forest of the token ids really seen: stored, dropped.

SGLang (0.5.23, `--kv-events-config`) publishes over ZMQ: a message is topic, sequence number and a msgpack array
(time, events, rank). BlockStored names blocks by hash, with their token ids and the block before them; BlockRemoved
names hashes; AllBlocksCleared ends them all. What is heard here feeds the simulator's own `EventIndex`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from kvgym.backends.sglang.launcher import Server
from kvgym.errors import BackendError, ConfigError, MissingDependencyError
from kvgym.forest.forest import Forest
from kvgym.types import KV_EVENT, REMOVED, STORED

VOCABULARY = 1 << 31
"""Bound of real token ids."""
Row = tuple[float, int, int, int, int, int, int]


class KVEvents:
    """Listens to the servers of a fleet.

    Args:
        servers: one per worker; each must publish (see `endpoint`).
        page_size: of the servers, tokens.

    Attributes:
        forest: grows with the prompts and the events.

    Raises:
        ConfigError: a server publishes no KV events.
        MissingDependencyError: a package of the extra `live` is absent.
    """

    def __init__(self, servers: Sequence[Server], page_size: int) -> None:
        try:
            import msgspec
            import zmq
        except ImportError as error:
            raise MissingDependencyError(f"KV events need pip install 'kvgym[live]': {error}") from error
        addresses = [endpoint(server) for server in servers]
        self.forest = Forest(page_size)
        self._page = page_size
        self._unpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
        self._nothing = zmq.Again
        self._context = zmq.Context()
        self._sockets = []
        self._blocks: list[dict[int, tuple[int, int]]] = [{} for _ in servers]  # hash -> (node, end in tokens)
        self._next = [0] * len(servers)
        for address in addresses:
            socket = self._context.socket(zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(address)
            self._sockets.append(socket)

    def wait_heard(self, probe: Callable[[int], None], timeout_s: float) -> None:
        """Return when every server is heard; a subscription takes a moment, and events before it are lost.

        Args:
            probe: makes worker ... store something.
            timeout_s: for each server.

        Raises:
            BackendError: a server is not heard.
        """
        for worker, socket in enumerate(self._sockets):
            deadline_s = time.monotonic() + timeout_s
            while not socket.poll(200):
                if time.monotonic() > deadline_s:
                    raise BackendError(f"no KV event of worker {worker} in {timeout_s:g} s; does its publisher bind?")
                probe(worker)

    def hear(self, now_s: float, incarnation: np.ndarray) -> np.ndarray:
        """Return what has happened since the last call, KV_EVENT rows in order per worker, at time `now_s`."""
        rows: list[Row] = []
        for worker, socket in enumerate(self._sockets):
            head = (now_s, worker, int(incarnation[worker]))
            while True:
                try:
                    _, number, payload = socket.recv_multipart(flags=1)  # zmq.NOBLOCK
                except self._nothing:
                    break
                if (sequence := int.from_bytes(number, "big")) < self._next[worker]:
                    rows += self._clear(head)  # a new server, with an empty cache
                self._next[worker] = sequence + 1
                for event in self._unpack(payload)[1]:
                    rows += self._read(head, event)
        return np.array(rows, KV_EVENT)

    def close(self) -> None:
        """Stop listening."""
        for socket in self._sockets:
            socket.close()
        self._context.term()

    def _read(self, head: tuple[float, int, int], event: Mapping[str, Any]) -> list[Row]:
        if event["type"] == "BlockStored":
            return self._store(head, event)
        if event["type"] == "BlockRemoved":
            return self._remove(head, event["block_hashes"])
        return self._clear(head)

    def _store(self, head: tuple[float, int, int], event: Mapping[str, Any]) -> list[Row]:
        blocks, parent = self._blocks[head[1]], event["parent_block_hash"]
        if parent is not None and parent not in blocks:
            return []  # its beginning was stored before we listened
        node, start = (0, 0) if parent is None else blocks[parent]
        ids = np.concatenate((self.forest.materialise(node, start, VOCABULARY), event["token_ids"]))
        node = self.forest.insert(ids)
        for number, block in enumerate(event["block_hashes"], 1):
            blocks[block] = (node, start + number * self._page)
        return [(*head, STORED, node, start, start + len(event["block_hashes"]) * self._page)]

    def _remove(self, head: tuple[float, int, int], hashes: Sequence[int]) -> list[Row]:
        found = [self._blocks[head[1]].pop(block, None) for block in hashes]
        return [(*head, REMOVED, node, end - self._page, end) for node, end in filter(None, found)]

    def _clear(self, head: tuple[float, int, int]) -> list[Row]:
        return self._remove(head, list(self._blocks[head[1]]))


def endpoint(server: Server) -> str:
    """Return the ZMQ address at which a server publishes its KV events.

    Raises:
        ConfigError: it publishes none.
    """
    given = server.info.get("kv_events_config")
    config = json.loads(given) if isinstance(given, str) and given else given or {}
    if config.get("publisher") != "zmq":
        raise ConfigError(
            f"{server.url} publishes no KV events, which observability events needs; for servers that kvgym starts set "
            "live.kv_events: true, others need --kv-events-config"
        )
    address = str(config.get("endpoint", "tcp://*:5557"))
    for everywhere in ("*", "0.0.0.0", "[::]"):
        address = address.replace(f"tcp://{everywhere}:", f"tcp://{urlsplit(server.url).hostname}:")
    return address
