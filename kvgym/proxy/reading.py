"""Reads a request's body as its server will: which token ids the prompt has, who sent it, how much it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kvgym.errors import ConfigError, MissingDependencyError, WorkloadError
from kvgym.logs.entries import read_request
from kvgym.logs.forms.chat import split
from kvgym.logs.rows import Row
from kvgym.logs.tokens import load_tokeniser

_DEFAULT_ANSWER = 16
"""Tokens that OpenAI's completions generate where the request does not say."""
Template = Callable[[list[dict[str, Any]], Any], str]
"""(messages, tools) -> the prompt's text."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for; `ids` are what its prompt is compared by."""

    ids: np.ndarray
    max_new_tokens: int
    session: str
    tenant: str
    priority: int


class Reader:
    """Turns bodies into `Asked`.

    With a model folder or tokenizer.json the ids are the model's own, chats by its own template if the folder has one
    (tokenizer_config.json or chat_template.jinja). Without, texts are cut by kvgym's built-in counter: equal beginnings
    of texts have equal ids, which is what prefix routing needs, but lengths are estimates.

    Args:
        tokenizer: model folder, tokenizer.json, or None.

    Raises:
        ConfigError: the folder has no tokenizer.json.
    """

    def __init__(self, tokenizer: Path | None = None) -> None:
        file = tokenizer
        if tokenizer is not None and tokenizer.is_dir():
            file = tokenizer / "tokenizer.json"
        if file is not None and not file.exists():
            raise ConfigError(f"no tokenizer at {file}; give a model folder or its tokenizer.json")
        self._tokenise = load_tokeniser(None if file is None else str(file))
        self._exact = file is not None
        self._template = _template(tokenizer) if tokenizer is not None and tokenizer.is_dir() else None

    def read(self, data: Any) -> Asked:
        """Return what the JSON `data` of a request asks for.

        Raises:
            WorkloadError: it is no object, or has no prompt.
        """
        if not isinstance(data, dict):
            raise WorkloadError(f"the body must be a JSON object, got {type(data).__name__}")
        entry = read_request(Row("request", _as_messages(data)))
        if isinstance(entry.prompt, np.ndarray):
            ids = entry.prompt
        elif self._template is not None and isinstance(data.get("messages"), list):
            ids = self._ids([self._template(data["messages"], data.get("tools"))])
        else:
            ids = self._ids([entry.prompt] if self._exact else split(entry.prompt))
        limit = entry.max_new_tokens or _limit(data) or _DEFAULT_ANSWER
        return Asked(ids, limit, entry.session, entry.tenant, entry.priority)

    def _ids(self, pieces: list[str]) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *self._tokenise(pieces)])


def _as_messages(data: dict[str, Any]) -> dict[str, Any]:
    """Return the body with the Responses API's `input` as chat messages, which is what it becomes at the server."""
    given = data.get("input")
    if given is None or any(name in data for name in ("messages", "prompt", "text", "input_ids")):
        return data
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(turns, list):
        raise WorkloadError(f"request: input must be text or a list of messages, got {type(given).__name__}")
    if isinstance(data.get("instructions"), str):
        turns = [{"role": "system", "content": data["instructions"]}, *turns]
    rest = {name: value for name, value in data.items() if name != "input"}
    return {**rest, "messages": turns}


def _limit(data: dict[str, Any]) -> int:
    for place in (data, data.get("sampling_params")):
        if isinstance(place, dict):
            for name in ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens"):
                value = place.get(name)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
    return 0


def _template(folder: Path) -> Template | None:
    """Return the folder's chat template; None: it has none, and chats are rendered as ChatML."""
    source = folder / "chat_template.jinja"
    config: dict[str, Any] = {}
    try:
        if (folder / "tokenizer_config.json").exists():
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        text = source.read_text(encoding="utf-8") if source.exists() else config.get("chat_template")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"cannot read the chat template of {folder}: {error}") from error
    if not isinstance(text, str):
        return None
    try:
        from jinja2.exceptions import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise MissingDependencyError("chat templates need jinja2: pip install 'kvgym[route]'") from error
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)

    def refuse(message: str) -> None:
        raise WorkloadError(f"the chat template refuses the messages: {message}")

    environment.globals["raise_exception"] = refuse
    names = {name: _special(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    compiled = environment.from_string(text)

    def apply(messages: list[dict[str, Any]], tools: Any) -> str:
        try:
            return compiled.render(messages=messages, tools=tools, add_generation_prompt=True, **names)
        except (TemplateError, TypeError, AttributeError, KeyError) as error:
            raise WorkloadError(f"the chat template can't render the messages: {error}") from error

    return apply


def _special(token: Any) -> str:
    return token.get("content", "") if isinstance(token, dict) else token or ""
