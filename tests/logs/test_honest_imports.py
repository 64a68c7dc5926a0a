"""Logs as people have them, each with a fault that must show: twenty of five forms by four faults, and each kind."""

from __future__ import annotations

import gzip
import json
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvgym.config.loader import resolve_workload
from kvgym.errors import WorkloadError
from kvgym.logs import columnar
from kvgym.logs.importing import import_log

WORDS = "the harbour pilot reads the tide table before the morning ferry leaves".split()


def text(seed, words):
    return " ".join(WORDS[(seed * 7 + i * (seed + 3)) % len(WORDS)] for i in range(words))


def chat(i, **more):
    messages = [{"role": "system", "content": text(1, 60)}, {"role": "user", "content": text(i, 30)}]
    answer = {"choices": [{"message": {"role": "assistant", "content": text(i + 50, 12)}}]}
    return {"timestamp": 1000.0 + i, "request": {"messages": messages}, "response": answer, **more}


def anthropic(i, **more):
    request = {
        "system": text(1, 60),
        "messages": [{"role": "user", "content": [{"type": "text", "text": text(i, 30)}]}],
    }
    return {"timestamp": 1000.0 + i, "request": request,
            "response": {"content": [{"type": "text", "text": text(i + 50, 12)}]}, **more}  # fmt: skip


def responses(i, **more):
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text(i + 50, 12)}]}
    return {"timestamp": 1000.0 + i, "request": {"instructions": text(1, 60), "input": text(i, 30)},
            "response": {"output": [item]}, **more}  # fmt: skip


def completion(i, **more):
    return {"timestamp": 1000.0 + i, "prompt": text(1, 60) + text(i, 30), "completion": text(i + 50, 12), **more}


def batch(i, **more):
    row = chat(i)
    return {"timestamp": row["timestamp"], "custom_id": f"r{i}", "body": row["request"],
            "response": {"status_code": 200, "body": row["response"]}, **more}  # fmt: skip


FORMS = {"chat": chat, "anthropic": anthropic, "responses": responses, "completion": completion, "batch": batch}


def imported(folder, rows, name="log.jsonl", **options):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made, facts = import_log(path, folder / "out.kvgw", **options)
    return columnar.read(made)[0], facts


@pytest.mark.parametrize("form", FORMS)
def test_form__prompts_share_what_they_share_and_nothing_is_unknown(tmp_path, form):
    columns, facts = imported(tmp_path, [FORMS[form](i) for i in range(8)])
    assert facts["requests"] == 8
    assert facts["answers_unknown"] == 0
    assert (columns["prompt_tokens"] > 80).all()
    assert (columns["output_tokens"] >= 10).all()
    load = resolve_workload(str(tmp_path / "out.kvgw")).generate(0)
    depth = load.forest.nodes["end"][load.forest.nodes["parent"][load.requests["prompt_node"]]]
    assert (depth >= 55).all()  # the system prompt is shared


@pytest.mark.parametrize("form", FORMS)
def test_fault__failed_requests_are_left_out_and_counted(tmp_path, form):
    rows = [FORMS[form](i) for i in range(6)]
    rows[2]["error"] = {"message": "overloaded"}
    rows[3] = {**rows[3], "status_code": 499}
    if form == "batch":
        rows[4]["response"] = {"status_code": 500, "body": {}}
    columns, facts = imported(tmp_path, rows)
    failed = 2 if form == "batch" else 1
    assert (facts["requests_failed"], facts["requests_cancelled"]) == (failed, 1)
    assert len(columns["prompt_tokens"]) == 5 - failed
    assert any(note.startswith(f"{failed} failed requests are left out") for note in facts["notes"])


@pytest.mark.parametrize("form", FORMS)
def test_fault__a_bad_row_is_named_and_left_out_on_request(tmp_path, form):
    rows = [FORMS[form](i) for i in range(6)]
    rows[1] = {"timestamp": 1001.0, "nothing": 1}
    rows[4] = {"timestamp": 1004.0, "nothing": 2}
    with pytest.raises(WorkloadError, match=r"log.jsonl, line 2: expected a prompt .*2 x expected a prompt.*--repair"):
        imported(tmp_path, rows)
    columns, facts = imported(tmp_path, rows, repair=True)
    assert (len(columns["prompt_tokens"]), facts["rows_unusable"]) == (4, 2)
    assert any("2 rows are left out" in note and "line 2" in note for note in facts["notes"])


@pytest.mark.parametrize("form", FORMS)
def test_fault__times_under_another_name_and_in_another_unit(tmp_path, form):
    seconds, _ = imported(tmp_path, [FORMS[form](i) for i in range(5)])
    for name, factor in (("ts_ms", 1e3), ("timestamp_ns", 1e9), ("@timestamp", 1.0)):
        rows = [FORMS[form](i) for i in range(5)]
        for row in rows:
            row[name] = row.pop("timestamp") * factor
        columns, facts = imported(tmp_path, rows)
        np.testing.assert_allclose(columns["arrival_s"], seconds["arrival_s"], atol=1e-3)
        assert facts["notes"][0].startswith(f"arrivals are read from {name} (")
    rows = [FORMS[form](i) for i in range(5)]
    for row in rows:
        row["when_it_came_time"] = row.pop("timestamp")
    _, facts = imported(tmp_path, rows)
    note = next(note for note in facts["notes"] if "no arrival times" in note)
    assert "when_it_came_time, which was not read" in note
    assert "rate_rps" in note


@pytest.mark.parametrize(
    ("form", "usage"),
    [
        (
            "chat",
            {"prompt_tokens": 100, "completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 880}},
        ),
        ("anthropic", {"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 900}),
        ("responses", {"input_tokens": 100, "output_tokens": 900}),
        ("completion", {"prompt_tokens": 100, "completion_tokens": 900}),
    ],
)
def test_fault__hidden_reasoning_counts_as_the_server_counted_it(tmp_path, form, usage):
    rows = [FORMS[form](i) for i in range(4)]
    for row in rows:
        row["usage"] = usage
    columns, facts = imported(tmp_path, rows)
    assert columns["output_tokens"].tolist() == [900] * 4
    assert facts["answers_longer_as_reported"] == 4
    assert any("the rest is taken as reasoning" in note for note in facts["notes"])
    assert (columns["prompt_tokens"] < 115).all()


def test_withheld_prompts__have_their_length_and_share_nothing(tmp_path):
    rows = [completion(i, usage={"prompt_tokens": 5000 + i, "completion_tokens": 12}) for i in range(3)]
    for row in rows:
        row["prompt"] = "redacted-by-proxy"
    columns, facts = imported(tmp_path, rows)
    assert columns["prompt_tokens"].tolist() == [5000, 5001, 5002]
    assert facts["prompts_withheld"] == 3
    assert any("withheld or replaced" in note for note in facts["notes"])
    load = resolve_workload(str(tmp_path / "out.kvgw")).generate(0)
    assert set(load.forest.nodes["parent"][load.requests["prompt_node"]]) == {0}


def test_images__have_the_reported_size_behind_what_is_shared(tmp_path):
    def row(i, url):
        parts = [{"type": "text", "text": text(1, 40)}, {"type": "image_url", "image_url": {"url": url}}]
        return {"timestamp": float(i), "messages": [{"role": "user", "content": parts}], "completion": text(i, 12),
                "usage": {"prompt_tokens": 1200, "completion_tokens": 12}}  # fmt: skip

    columns, facts = imported(tmp_path, [row(i, "data:a") for i in range(3)])
    assert columns["prompt_tokens"].tolist() == [1200] * 3
    assert (facts["prompts_withheld"], facts["prompts_longer_as_reported"]) == (0, 3)
    load = resolve_workload(str(tmp_path / "out.kvgw")).generate(0)
    assert (load.forest.nodes["start"][load.requests["prompt_node"]] > 40).all()  # text and image are shared


def test_a_little_more_than_the_text__is_left_alone(tmp_path):
    _, facts = imported(
        tmp_path, [completion(i, usage={"prompt_tokens": 110, "completion_tokens": 14}) for i in range(3)]
    )
    assert facts["filler_tokens"] == facts["answers_longer_as_reported"] == facts["prompts_longer_as_reported"] == 0


def test_unread_fields__are_named_with_their_count(tmp_path):
    rows = [completion(i, colour="red", **({"shape": 1} if i else {})) for i in range(3)]
    _, facts = imported(tmp_path, rows)
    assert facts["fields_not_read"] == {"colour": 3, "shape": 2}
    assert any("fields that were not read: colour (3), shape (2)" in note for note in facts["notes"])


def test_mixed_clocks__of_55_years_are_refused(tmp_path):
    rows = [completion(0, timestamp=12.0), completion(1, timestamp=1.76e12)]
    with pytest.raises(WorkloadError, match=r"the arrivals span 5.* years, read as .*mixed"):
        imported(tmp_path, rows)


def test_latencies_without_a_unit__that_are_milliseconds(tmp_path):
    def turn(i):
        asked = [{"role": "user", "content": text(0, 5)}]
        for before in range(i):
            asked += [
                {"role": "assistant", "content": text(before + 50, 6)},
                {"role": "user", "content": text(before, 4)},
            ]
        return {
            "timestamp": 9.0 * i,
            "latency": 1500,
            "session_id": "s",
            "messages": asked,
            "completion": text(i + 50, 6),
        }

    columns, facts = imported(tmp_path, [turn(i) for i in range(3)])
    assert facts["latencies_taken_as_ms"]
    np.testing.assert_allclose(columns["think_s"][1:], 7.5)
    rows = [{**turn(i), "latency": 1.5} for i in range(3)]
    columns, facts = imported(tmp_path, rows)
    assert not facts["latencies_taken_as_ms"]
    np.testing.assert_allclose(columns["think_s"][1:], 7.5)


@pytest.mark.parametrize("kept", [True, False])
def test_thinking_inside_the_answer__splits_no_session(tmp_path, kept):
    thought = "<think>One boat, two boats.</think>"
    first = [{"role": "user", "content": "Count them."}]
    again = [
        *first,
        {"role": "assistant", "content": (thought if kept else "") + "Seven."},
        {"role": "user", "content": "Sure?"},
    ]
    rows = [{"timestamp": 1.0, "messages": first, "completion": f"{thought}Seven."},
            {"timestamp": 9.0, "messages": again, "completion": "Yes."}]  # fmt: skip
    columns, facts = imported(tmp_path, rows)
    assert columns["output_tokens"][0] > 8
    if not kept:
        assert facts["sessions"] == 1


def test_arguments__their_spacing_says_nothing_and_the_order_of_tools_does(tmp_path):
    def rows(spaced, tools):
        call = {"id": "a", "type": "function", "function": {"name": "w", "arguments": '{"city":"Oslo"}'}}
        first = [{"role": "user", "content": "Weather?"}]
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        later = json.loads(json.dumps(said))
        later["tool_calls"][0]["function"]["arguments"] = spaced
        result = {"role": "tool", "tool_call_id": "a", "content": "wet"}
        asked = {"timestamp": 1.0, "messages": first, "response": {"choices": [{"message": said}]}}
        then = {"timestamp": 3.0, "messages": [*first, later, result], "completion": "Rain."}
        return [{**asked, "tools": tools}, {**then, "tools": tools}]

    one, other = [{"a": 1, "b": 2}], [{"b": 2, "a": 1}]
    assert imported(tmp_path, rows('{"city": "Oslo"}', one))[1]["sessions"] == 1
    swapped = [rows("{}", one)[0], {**rows("{}", other)[0], "timestamp": 5.0}]
    columns, _ = imported(tmp_path, swapped)
    load = resolve_workload(str(tmp_path / "out.kvgw")).generate(0)
    shared = load.forest.nodes["start"][load.requests["prompt_node"]]
    assert shared.max() < columns["prompt_tokens"][0] / 2


@pytest.mark.parametrize("packing", ["plain", "gz", "zst", "xz", "parquet", "array", "csv"])
def test_containers__give_the_same_requests(tmp_path, packing):
    rows = [completion(i) for i in range(5)]
    expected, _ = imported(tmp_path, rows)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / f"log.{packing}"
    if packing == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif packing == "csv":
        lines = [
            "timestamp,prompt,completion",
            *(f'{r["timestamp"]},"{r["prompt"]}","{r["completion"]}"' for r in rows),
        ]
        path.write_text("\n".join(lines) + "\n")
    elif packing == "array":
        path.write_text(json.dumps(rows))
    else:
        pack = {"plain": bytes, "gz": gzip.compress, "xz": lzma.compress,
                "zst": lambda d: pa.compress(d, "zstd", asbytes=True)}[packing]  # fmt: skip
        path.write_bytes(pack(data))
    made, facts = import_log(path, tmp_path / "other.kvgw")
    columns = columnar.read(made)[0]
    assert facts["format"] == "openai"
    for name in expected:
        np.testing.assert_array_equal(columns[name], expected[name], err_msg=name)


@pytest.mark.parametrize("spelling", [("from", "value"), ("role", "content"), ("role", "value")])
@pytest.mark.parametrize("lines", [True, False])
def test_sharegpt__in_every_spelling(tmp_path, spelling, lines):
    who, what = spelling
    turns = [[("user", text(1, 9)), ("assistant", text(2, 9)), ("user", text(3, 9)), ("assistant", text(4, 9))],
             [("user", text(5, 9)), ("assistant", text(6, 9))]]  # fmt: skip
    rows = [{"id": str(i), "conversations": [{who: a, what: b} for a, b in turn]} for i, turn in enumerate(turns)]
    path = tmp_path / "dump.json"
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))
    _, facts = import_log(path, tmp_path / "out.kvgw")
    assert (facts["format"], facts["requests"], facts["sessions"]) == ("sharegpt", 3, 2)


def test_message_lists_that_end_in_an_answer__are_one_request_per_answer(tmp_path):
    messages = [{"role": "user", "content": text(1, 9)}, {"role": "assistant", "content": text(2, 9)},
                {"role": "user", "content": text(3, 9)}, {"role": "assistant", "content": text(4, 9)}]  # fmt: skip
    columns, facts = imported(tmp_path, [{"id": "a", "messages": messages}, {"id": "b", "messages": messages[:2]}])
    assert (facts["requests"], facts["sessions"], facts["answers_unknown"]) == (3, 2, 0)
    assert (columns["output_tokens"] >= 8).all()


def test_traces__with_sessions_delays_and_without_hashes(tmp_path):
    rows = [
        {"session_id": "s", "timestamp": 0, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]},
        {"session_id": "s", "delay": 1500, "input_length": 1600, "output_length": 20, "hash_ids": [0, 1, 2, 3]},
        {"timestamp": 4000, "input_length": 600, "output_length": 20},
        {"timestamp": 5000, "input_length": 600, "output_length": 0, "hash_ids": [7, 8]},
    ]
    columns, facts = imported(tmp_path, rows)
    assert (facts["format"], facts["requests"], facts["sessions"], facts["requests_empty"]) == ("mooncake", 3, 2, 1)
    assert columns["arrival_s"].tolist() == [0.0, 1.5, 4.0]
    load = resolve_workload(str(tmp_path / "out.kvgw")).generate(0)
    assert load.forest.nodes["start"][load.requests["prompt_node"][1]] >= 1024


def test_lengths_alone__share_nothing_and_it_is_said(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n2023-11-16 18:17:04.03,318,8\n"
    )
    made, facts = import_log(path, tmp_path / "out.kvgw")
    columns = columnar.read(made)[0]
    assert columns["prompt_tokens"].tolist() == [480, 318]
    assert columns["output_tokens"].tolist() == [10, 8]
    assert any("no prompt shares anything" in note for note in facts["notes"])


def test_vllm_log__requests_among_other_lines(tmp_path):
    path = tmp_path / "vllm.log"
    line = ("INFO 11-04 22:14:{second} [logger.py:43] Received request cmpl-{i}: prompt: 'It\\'s {i}', params: "
            "SamplingParams(n=1, max_tokens=16), prompt_token_ids: {ids}, lora_request: None.\n")  # fmt: skip
    path.write_text(
        "INFO starting\n" + line.format(second=30, i=1, ids="[5, 6, 7]") + line.format(second=32, i=2, ids="None")
    )
    made, facts = import_log(path, tmp_path / "out.kvgw")
    columns = columnar.read(made)[0]
    assert (facts["format"], facts["requests"], facts["rows_skipped"]) == ("vllm", 2, 1)
    assert columns["arrival_s"].tolist() == [0.0, 2.0]
    assert columns["max_new_tokens"].tolist() == [16, 16]


def test_a_log_named_as_workload__is_imported_on_the_way(tmp_path, caplog):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(chat(i, colour=1)) + "\n" for i in range(4)))
    load = resolve_workload(str(path)).generate(0)
    assert len(load.requests) == 4
    assert "fields that were not read: colour (4)" in caplog.text
    caplog.clear()
    assert len(resolve_workload(str(path)).generate(1).requests) == 4
    assert not caplog.text  # made once


def test_requests_that_generate_nothing__are_named(tmp_path):
    rows = [
        batch(0, url="/v1/chat/completions"),
        {"url": "/v1/embeddings", "body": {"input": "x"}, "timestamp": 1001.0},
    ]
    with pytest.raises(WorkloadError, match="a request to /v1/embeddings generates nothing; --repair"):
        imported(tmp_path, rows)
    assert imported(tmp_path, rows, repair=True)[1]["requests"] == 1
