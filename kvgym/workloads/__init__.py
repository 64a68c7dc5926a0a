"""Workloads are requests over one prefix forest.

A source is a frozen dataclass whose fields are its configuration (configs/workloads) and whose
`generate(seed, page_size)` returns a Workload: generated (`gsp`, `multiturn`, `ladder`), written out (`fixed`), or
read from a file of real requests (`sharegpt` text, `mooncake` traces, `blocks` session files, `imported` logs of one's
own, which `kvgym.logs` has prepared). `varied` draws fields of another one anew for each seed, `part` serves some of
its sessions. What several sources share is in `building`.
"""

from __future__ import annotations

from kvgym.config.registry import Registry

WORKLOADS = Registry(
    "workload",
    {
        "blocks": "kvgym.workloads.blocks:Blocks",
        "fixed": "kvgym.workloads.fixed:Fixed",
        "gsp": "kvgym.workloads.gsp:GSP",
        "ladder": "kvgym.workloads.ladder:Ladder",
        "imported": "kvgym.workloads.imported:Imported",
        "mooncake": "kvgym.workloads.mooncake:Mooncake",
        "multiturn": "kvgym.workloads.multiturn:MultiTurn",
        "part": "kvgym.workloads.part:Part",
        "sharegpt": "kvgym.workloads.sharegpt:ShareGPT",
        "varied": "kvgym.workloads.varied:Varied",
    },
    group="kvgym.workloads",
    check="kvgym.config.contracts:workload_source",
)
"""Name of a workload source -> the class that carries it."""
