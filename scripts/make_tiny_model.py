"""Makes a tiny Llama for servers without a GPU: configuration and tokenizer, no weights (SGLang draws dummy ones).

    python scripts/make_tiny_model.py DIR

Two layers of width 64 and a byte-level BPE trained on made-up words: under 100 KB. Its text means nothing; cache hits,
evictions and routing are real. Start SGLang with ``--load-format dummy`` so that it asks for no weights.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1000
POSITIONS = 32768
"""Longest context; the KV pool of a test server is far smaller."""

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def train_tokenizer() -> Tokenizer:
    """Return a byte-level BPE trained on words of random syllables; the same on every call."""
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(2000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["<s>", "</s>", "<pad>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return tokenizer


def write_model(folder: Path) -> None:
    """Write config.json, generation_config.json, tokenizer.json and tokenizer_config.json to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "config.json": MODEL | {"vocab_size": tokenizer.get_vocab_size()},
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "model_max_length": POSITIONS,
            "chat_template": TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/make_tiny_model.py DIR")
    write_model(Path(sys.argv[1]))
