"""The model of a recipe against the published model that it is named after, and against the size in its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from primus_lint.ledger.activations.attention import sinks
from primus_lint.readers.models import model_facts
from primus_lint.rules.checks.key_facts import WRITTEN, listed, say, shown
from primus_lint.rules.model_names import read_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ir.run import Run
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

# Facts of the model table that the run has under the same name; None there means what the second key says.
FACTS = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
    "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
    "num_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size",
    "moe_router_score_function", "qk_layernorm", "add_bias_linear", "add_qkv_bias", "normalization", "swiglu",
    "untie_embeddings_and_output_weights", "position_embedding_type", "rotary_base", "rotary_percent", "softmax_type",
)  # fmt: skip
CUT = frozenset(("num_layers", "num_experts"))  # a file that changes these makes a smaller stand-in on purpose
NONE_UNLESS_SAID = frozenset(("moe_shared_expert_intermediate_size",))
LATENT = frozenset(("num_query_groups", "kv_channels"))  # without meaning under latent attention
ANOTHER_SIZE = 0.01  # share of parameters by which it is another model: norms and biases are less
# A name is rounded to its last digit, and may count the embeddings or not. Farthest that the count of a published model
# lies from the number in its name: 3.7 % (Llama-2 7B has 6.74 billion; the shipped table, tests/ledger/test_count.py).
ROUNDING = 0.05


def preset_unlike(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """What presets make other than in the published model."""
    every = _unlike(subject)
    lost = {key: pair for key, pair in every.items() if not _own(subject, key)}
    if not lost:
        return
    facts = model_facts(subject.section.model or "")
    assert facts is not None
    message = f"the preset {subject.section.model} is not {facts['name']} as published: {_said(lost)}"
    size = _sizes(subject, facts) if len(lost) == len(every) else None
    severity = "info"
    if size is not None:
        whole, body = size
        for (ours, theirs), what in ((whole, ""), (body, " without embeddings")):
            if abs(ours / theirs - 1) > ANOTHER_SIZE and severity == "info":
                severity = rule["severity"]
                message += f"; it has {_count(ours)} parameters{what} instead of {_count(theirs)}"
    yield say(rule, subject, message, tuple(lost), severity=severity, labels=_labels(lost))


def file_unlike(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """What the file itself makes other than in the published model."""
    if not any(_own(subject, key) for key in FACTS if key not in CUT):
        return
    changed = {key: pair for key, pair in _unlike(subject).items() if _own(subject, key) and key not in CUT}
    if changed:
        facts = model_facts(subject.section.model or "")
        assert facts is not None
        message = f"no longer {facts['name']} as published: {_said(changed)}"
        yield say(rule, subject, message, tuple(changed), labels=_labels(changed))


def size_of_name(subject: Subject, run: Run, rule: dict[str, Any]) -> Iterator[Finding]:
    """The number of parameters is not the one in the model's name. Known models are compared fact by fact instead."""
    model = subject.section.model
    if model is None or run.model.kind != "gpt" or model_facts(model) is not None:
        return
    name = read_name(model)
    said, half = name.total, name.digit / 2
    if said is None or name.cut or any(_own(subject, key) for key in CUT):
        return
    from primus_lint.ledger.count import parameters

    body, ends = parameters(run)
    low, high = min(body * (1 - ROUNDING), body - half), max((body + ends) * (1 + ROUNDING), body + ends + half)
    if run.model.vocab_size is None:
        high = max(high, said)  # the embeddings are not known
    if low <= said <= high:
        return
    counts = f"{_count(body + ends)} ({_count(body)} without embeddings)" if ends else _count(body)
    message = f"{model} has {counts} parameters, not the {_count(said)} of its name"
    yield say(rule, subject, message, ("num_layers", "hidden_size", "ffn_hidden_size", "num_experts"))


def _unlike(subject: Subject) -> dict[str, tuple[Any, Any]]:
    """Key -> (value that runs, published value) where they differ; {} for a model that is not in the table."""
    facts = model_facts(subject.section.model or "")
    if facts is None or subject.run is None or subject.run.model.kind != "gpt":
        return {}
    if not _same_model(subject.section.model or "", facts["name"]):
        return {}
    names, published = subject.lowered.namespace, facts["args"]
    latent = bool(names.get("multi_latent_attention")) or bool(published.get("multi_latent_attention"))
    found = {}
    for key in FACTS:
        if latent and key in LATENT:
            continue
        if key not in published and not (key in NONE_UNLESS_SAID and published.get("num_experts")):
            continue
        if key in _MLA and not names.get("multi_latent_attention"):
            continue
        runs = _effective(key, subject.run, names)
        there = published.get(key)
        if runs != there and (runs or there):
            found[key] = (runs, there)
    if published.get("quick_geglu") or published.get("unlike_activation"):
        found.pop("swiglu", None)  # another gated activation: told by no single key
    return found


_MLA = frozenset(("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"))


def _same_model(preset: str, public: str) -> bool:
    """Whether a preset means the public model itself, not a relative whose sizes the table lends it (a distillation of
    it, its next version): the same families, and every number of the public name in the preset's."""
    if read_name(preset).families != read_name(public).families:
        return False
    numbers = re.findall(r"\d+", preset)
    return all(
        numbers.count(number) >= re.findall(r"\d+", public).count(number) for number in re.findall(r"\d+", public)
    )


def _effective(key: str, run: Run, names: Any) -> Any:
    """The value that runs, defaults filled in."""
    model = run.model
    if key == "add_qkv_bias":
        return model.qkv_bias
    if key == "moe_ffn_hidden_size":
        return model.moe.ffn_hidden_size if model.moe is not None else names.get(key)
    if key == "softmax_type" and sinks(run) and run.parallel.cp == 1:
        return "learnable"  # Primus's attention holds a sink for every head
    if key in ("ffn_hidden_size", "num_query_groups", "kv_channels"):
        return getattr(model, key)
    return names.get(key)


def _own(subject: Subject, key: str) -> bool:
    origin = subject.section.origin(key)
    return origin is not None and origin.layer in WRITTEN


def _said(pairs: dict[str, tuple[Any, Any]]) -> str:
    return listed([f"{key} {shown(runs)} (published {shown(there)})" for key, (runs, there) in pairs.items()], 4)


def _labels(pairs: dict[str, tuple[Any, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, f"published: {shown(there)}") for key, (_, there) in pairs.items())


def _sizes(subject: Subject, facts: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """((ours, published) parameters, the same without embeddings), with the published vocabulary; None: not known."""
    from primus_lint.ir.record import replace
    from primus_lint.ledger.count import parameters

    run, published = subject.run, facts["args"]
    vocab, width = published.get("vocab_size"), published.get("hidden_size")
    if run is None or vocab is None or width is None or not facts.get("counted"):
        return None
    body, ends = parameters(replace(run, model=replace(run.model, vocab_size=vocab)))
    matrices = 2 if published.get("untie_embeddings_and_output_weights") else 1
    return (body + ends, facts["counted"]), (body, facts["counted"] - matrices * vocab * width)


def _count(number: float) -> str:
    """Parameters with three digits: 30.5B, 1.24B."""
    for unit, word in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:.3g}{word}"
    return f"{number:,.0f}"
