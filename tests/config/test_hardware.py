import pytest

from kvgym.config.cluster import resolve_cluster
from kvgym.config.hardware import GPUS, MEASURED, MODELS, HardwareConfig, with_hardware
from kvgym.costs import resolve_cost
from kvgym.errors import ConfigError

POOLS = [
    # llmd_runs.json (run 37, G15, G16), LLMServingSim's RTX 4090 run (2,588 blocks of 16)
    (("h100", "llama-3.1-70b", 4), "vllm-0.13", 461_376),
    (("h100", "qwen3-32b", 2), "sglang-0.5.23", 321_856),
    (("h100", "qwen3-32b", 2), "vllm-0.13", 298_000),
    (("rtx4090", "llama-3.1-8b", 1), "vllm-0.13", 41_408),
]


@pytest.mark.parametrize(("worker", "engine", "measured"), POOLS[:3])
def test_kv_tokens__near_measured_pools(worker, engine, measured):
    assert HardwareConfig(*worker).kv_tokens(engine) == pytest.approx(measured, rel=0.05)


def test_kv_tokens__of_a_small_card_depend_on_what_the_engine_reserves():
    worker, engine, measured = POOLS[3]
    assert measured / 2 < HardwareConfig(*worker).kv_tokens(engine) < measured


def test_l40__has_the_papers_pool():
    assert HardwareConfig("l40", "llama-3.1-8b").kv_tokens("sglang-0.4.6") == pytest.approx(196_000, rel=0.01)


@pytest.mark.parametrize(("key", "preset"), MEASURED.items(), ids=lambda value: str(value))
def test_roofline__near_what_was_measured(key, preset):
    """A prefill of 4,096 tokens and a decode of 16 sequences with 2,048 tokens each, within a quarter."""
    gpu, model, tp, dtype = key
    roof = resolve_cost(HardwareConfig(gpu, model, tp, dtype).roofline_ms())
    true = resolve_cost(preset)
    for seconds in (
        lambda c: c.p0_ms + 4096 * c.p_tok_ms + 4096**2 / 2 * c.p_quad_ms,
        lambda c: c.d0_ms + 16 * c.d_seq_ms + 16 * 2048 * c.d_kvtok_ms,
    ):
        assert seconds(roof) == pytest.approx(seconds(true), rel=0.25)


def test_cluster__takes_measured_presets_and_keeps_what_is_given():
    fleet = resolve_cluster({"workers": 2, "hardware": {"gpu": "h100", "model": "llama-3.1-8b"}})
    assert fleet.cost == "h100-llama31-8b"
    assert 400_000 < fleet.capacities[0] < 480_000
    given = {"workers": 1, "capacity_tokens": 5000, "cost": "l40-llama31-8b"}
    fleet = resolve_cluster({**given, "hardware": {"gpu": "h200", "model": "mixtral-8x7b"}})
    assert (fleet.capacities[0], fleet.cost) == (5000, "l40-llama31-8b")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", MODELS)
def test_any_card__serves_any_model_with_enough_of_them(gpu, model):
    fleet = resolve_cluster({"workers": 1, "hardware": {"gpu": gpu, "model": model, "tensor_parallel": 16}})
    assert fleet.capacities[0] > 1024


def test_mixtral__computes_two_experts_and_reads_them_all():
    moe = HardwareConfig("h200", "mixtral-8x7b").roofline_ms()
    dense = HardwareConfig("h200", "llama-3.1-8b").roofline_ms()
    assert moe["p_tok_ms"] / dense["p_tok_ms"] == pytest.approx(12.9 / 8.03, rel=1e-3)
    assert moe["d0_ms"] / dense["d0_ms"] == pytest.approx(46.7 / 8.03, rel=1e-3)


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        ({"gpu": "h1000", "model": "llama-3.1-8b"}, r"hardware.gpu must be one of .*got 'h1000'.*'h100'"),
        ({"gpu": "h100", "model": "llama"}, "hardware.model must be one of"),
        ({"gpu": "h100", "model": "llama-3.1-8b", "dtype": "int4"}, "hardware.dtype must be one of bf16, fp8"),
        ({"gpu": "h100", "model": "llama-3.1-70b"}, "leave no room for a KV cache; take more GPUs"),
        ({"gpus": "h100"}, "gpus"),
        ({"gpu": "h100", "model": "llama-3.1-8b", "tensor_parallel": 0}, "tensor_parallel must be"),
        ("h100", "hardware must be a map"),
    ],
)
def test_mistakes__are_named(hardware, message):
    with pytest.raises(ConfigError, match=message):
        resolve_cluster({"workers": 1, "hardware": hardware})


def test_no_hardware__changes_nothing():
    assert with_hardware({"workers": 3}) == {"workers": 3}
