"""How many tokens a named tokenizer holds: what Megatron learns at start, and a linter must know beforehand.

Megatron takes `len(tokenizer)`, added tokens included (megatron/core/tokenizers/text), which can be less than the rows
of the published model: Qwen3 publishes 151,936 rows for 151,669 tokens.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Vocabulary(NamedTuple):
    """Tokens before padding. `exact`: of the tokenizer itself, else the rows of the published model (at most)."""

    size: int
    source: str
    exact: bool


# Start of the simplified name -> length of the published tokenizer (tokenizer.json and tokenizer_config.json of the
# model on Hugging Face: base vocabulary plus added tokens)
_FAMILIES = (
    (r"(meta)?llama2|codellama(?!.*python)", 32_000),
    (r"(meta)?llama3|deepseekr1distillllama", 128_256),
    (r"qwen3(?!\.|next|vl|omni)", 151_669),
    (r"qwen2\.5(?!vl|omni)|deepseekr1distillqwen", 151_665),
    (r"qwen2(?!\.|vl)", 151_646),
    (r"deepseekv2", 100_002),
    (r"deepseekv3(?!\.)|deepseekr1(0528)?$", 128_815),
    (r"mixtral8x(7|22)b(instruct)?v0\.1|mistral7b(instruct)?v0\.[12]", 32_000),
    (r"mistral7b(instruct)?v0\.3", 32_768),
    (r"nemotron2256k|nemotron4", 256_000),
    (r"gpt2|bpe/vocab\.json", 50_257),
)
# Type -> length where the type alone settles it, or almost: GPT-2's files are what GPT2BPETokenizer is used with
_TYPES = {"GPT2BPETokenizer": 50_257, "Llama2Tokenizer": 32_000, "Llama3Tokenizer": 128_256}


def vocabulary_of(tokenizer_type: Any, tokenizer_model: Any, vocab_file: Any) -> Vocabulary | None:
    """The vocabulary of a tokenizer by its names; None when it is not known. Text of any kind, never an error."""
    for name in (tokenizer_model, vocab_file):
        if isinstance(name, str) and (found := _named(name)) is not None:
            return found
    if isinstance(tokenizer_type, str) and tokenizer_type in _TYPES:
        return Vocabulary(_TYPES[tokenizer_type], tokenizer_type, True)
    if tokenizer_type is None and isinstance(vocab_file, str) and vocab_file.endswith("vocab.json"):
        return Vocabulary(_TYPES["GPT2BPETokenizer"], "GPT-2's vocab.json", True)
    return None


def _named(name: str) -> Vocabulary | None:
    from primus_lint.readers.models import model_facts

    folder, _, last = name.rstrip("/").rpartition("/")
    if last in ("tokenizer.model", "tokenizer.json"):  # of the folder that is named after the model
        last = folder.rpartition("/")[2]
    simple = re.sub(r"[-_ ]", "", last.lower()).removeprefix("tokenizer")
    for pattern, size in _FAMILIES:
        if re.match(pattern, simple):
            return Vocabulary(size, name, True)
    facts = model_facts(name)
    rows = None if facts is None else facts["args"].get("vocab_size")
    return Vocabulary(rows, name, False) if isinstance(rows, int) else None
