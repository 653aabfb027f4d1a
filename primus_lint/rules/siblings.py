"""Drift between siblings: the variants of one recipe for several devices and number formats, side by side.

Siblings are the files of one run whose paths differ in nothing but the device (`MI300X/`, `-h100`) and the number format
(`-BF16`, `-FP8`). Batch, parallel degrees, kernels and precision are tuned for each; what is trained is not.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.hardware import guess_from_path
from primus_lint.rules import catalogue
from primus_lint.rules.checks.key_facts import WRITTEN, listed, say, shown
from primus_lint.rules.finding import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

RULE = "sibling-drift"
TOLD_HERE = frozenset(("published-model-changed",))  # the same key of the same file, seen from one file alone
_FORMAT = re.compile(r"(?<![a-z0-9])(?:nanoo[-_])?(?:bf16|fp16|fp8|mxfp8|mxfp4|nvfp4|fp4)(?![a-z0-9])")
_WORD = re.compile(r"[-_.]+")

# What is trained: the model, its data, and how it learns. Keys of all frameworks.
TRAINED = frozenset(
    (
        # the model
        "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
        "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim",
        "num_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq", "moe_shared_expert_intermediate_size",
        "moe_router_score_function", "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff",
        "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor",
        "moe_expert_capacity_factor", "mtp_num_layers", "mtp_loss_scaling_factor", "qk_layernorm", "add_bias_linear",
        "add_qkv_bias", "normalization", "layernorm_epsilon", "swiglu", "untie_embeddings_and_output_weights",
        "position_embedding_type", "rotary_base", "rotary_percent", "rope_scaling_factor", "use_rope_scaling",
        "softmax_type", "use_sink_attention", "window_size", "hybrid_layer_pattern", "init_method_std",
        "model.name", "model.flavor", "model_name", "model.converters.lora", "base_num_decoder_layers", "base_emb_dim",
        # the data
        "seq_length", "tokenizer_type", "tokenizer_model", "vocab_size", "mock_data",
        "reset_position_ids", "eod_mask_loss", "training.seq_len", "training.dataset", "training.mock_data",
        "model.hf_assets_path", "max_target_length", "dataset_type", "dataset_name",
        # how it learns
        "optimizer", "lr", "min_lr", "lr_decay_style", "lr_warmup_iters", "lr_warmup_fraction", "lr_decay_iters",
        "weight_decay", "clip_grad", "adam_beta1", "adam_beta2", "adam_eps", "hidden_dropout", "attention_dropout",
        "optimizer.name", "optimizer.lr", "optimizer.beta1", "optimizer.beta2", "optimizer.eps",
        "optimizer.weight_decay", "lr_scheduler.warmup_steps", "lr_scheduler.decay_ratio", "lr_scheduler.min_lr_factor",
        "training.max_norm", "learning_rate", "warmup_steps_fraction",
    )
)  # fmt: skip


# Lengths of the schedule follow the length of the training: compared only where that is the same.
SCHEDULE = frozenset(
    (
        "lr_warmup_iters",
        "lr_decay_iters",
        "lr_scheduler.warmup_steps",
        "lr_scheduler.decay_ratio",
        "warmup_steps_fraction",
    )
)
LENGTH = ("train_iters", "train_samples", "training.steps", "steps")
TOKENIZER = frozenset(
    ("tokenizer_type", "tokenizer_model", "vocab_size", "model.hf_assets_path")
)  # unused by mock data


class Member(NamedTuple):
    checked: Checked
    subject: Subject


def drift(checked: list[Checked], only: Checked | None = None) -> None:
    """Add to every file (or to one) that trains something else than its siblings a finding that says what, and where
    they differ."""
    from primus_lint.rules.judge import settle

    code = catalogue.codes_by_name().get(RULE)
    if code is None or len(checked) < 2:
        return
    families: dict[tuple[str, str], list[Member]] = {}
    for item in checked:
        if item.is_recipe and not item.document.fatal and len(item.subjects) == 1:
            subject = item.subjects[0]
            families.setdefault((subject.section.framework, family_of(item.path)), []).append(Member(item, subject))
    rule = catalogue.facts()[code]
    for members in families.values():
        if len(members) > 1:
            for member, found in odd_ones(members):
                if only is None or member.checked is only:
                    settle(member.checked, _say(member, found, rule))


def have_siblings(path: str, others: list[str]) -> bool:
    """Whether a sibling of a file is among others."""
    family = family_of(path)
    return any(other != path and family_of(other) == family for other in others)


def family_files(path: str, root: str) -> list[str]:
    """The siblings of a file on disk, below the folder `root` that holds it."""
    parts = os.path.relpath(path, root).split(os.sep)
    found = [root]
    for part in parts:
        tail = "" if part is parts[-1] else "/x"  # a folder is no file with a suffix
        wanted = family_of(part + tail)
        found = [
            os.path.join(folder, name)
            for folder in found
            for name in sorted(os.listdir(folder))
            if family_of(name + tail) == wanted and (not tail or os.path.isdir(os.path.join(folder, name)))
        ]
    return [other for other in found if other != os.path.abspath(path) and os.path.isfile(other)]


def family_of(path: str) -> str:
    """The path without device and number format: equal for siblings."""
    parts = path.replace(os.sep, "/").lower().split("/")
    parts[-1] = _FORMAT.sub("", parts[-1].rpartition(".")[0])
    return "/".join("-".join(_plain_words(part)) for part in parts)


def _plain_words(part: str) -> list[str]:
    """The words of a path's part that name no device; a single "*" where none is left."""
    words = [word for word in _WORD.split(part) if word]
    return [word for word in words if guess_from_path(word + "/") is None] or ["*"]


def odd_ones(members: list[Member]) -> Iterator[tuple[Member, list[tuple[str, Any, Member]]]]:
    """The members that differ from the others in what is trained: each with the keys, the usual value, and who has it.

    The value of most members is the family's; of equally frequent ones the one that the presets have, then that of the
    first file.
    """
    differing: dict[int, list[tuple[str, Any, Member]]] = {}
    mock = all(member.subject.section.get("mock_data") or member.subject.section.get("training.mock_data")
               for member in members)  # fmt: skip
    one_length = len({tuple(shown(_value(member.subject, key)) for key in LENGTH) for member in members}) == 1
    for key in sorted(TRAINED - (TOKENIZER if mock else frozenset()) - (frozenset() if one_length else SCHEDULE)):
        values = [_value(member.subject, key) for member in members]
        texts = [shown(value) for value in values]
        if len(set(texts)) == 1:
            continue
        rank: dict[str, tuple[int, int, int]] = {}
        for index, text in enumerate(texts):
            inherited = sum(_inherited(member.subject, key) == text for member in members)
            rank.setdefault(text, (texts.count(text), inherited, -index))
        usual = max(rank, key=lambda text: rank[text])
        model = members[texts.index(usual)]
        for index, text in enumerate(texts):
            if text != usual:
                differing.setdefault(index, []).append((key, values[texts.index(usual)], model))
    for index, found in sorted(differing.items()):
        yield members[index], found


def _value(subject: Subject, key: str) -> Any:
    """The value that runs, framework defaults filled in; None where nothing is known."""
    if subject.has_figures:
        value = subject.lowered.namespace.get(key)
        return subject.section.get(key) if value is None else value
    if subject.section.framework == "maxtext":
        from primus_lint.readers.tables import defaults

        return subject.section.get(key, defaults("maxtext").get(key))
    return subject.section.get(key)


def _inherited(subject: Subject, key: str) -> str | None:
    """What a preset gives a key, whatever the file says; None where no preset has it."""
    value = subject.section.values.get(key)
    presets = ("model-preset", "module-preset")
    return None if value is None else next((shown(o.value) for o in value.origins if o.layer in presets), None)


def _written(subject: Subject, key: str) -> bool:
    origin = subject.section.origin(key)
    return origin is not None and origin.layer in WRITTEN


def _say(member: Member, found: list[tuple[str, Any, Member]], rule: dict[str, Any]) -> Finding:
    subject = member.subject
    found.sort(key=lambda entry: not _written(subject, entry[0]))  # what the file writes first: it can be pointed at
    parts, related = [], []
    for key, usual, other in found:
        parts.append(f"{key} {shown(_value(subject, key))} (there {shown(usual)})")
        related.append(_place(other, key, shown(usual)))
    others = list(dict.fromkeys(os.path.relpath(other.checked.path, os.path.dirname(member.checked.path) or ".")
                                for _, _, other in found))  # fmt: skip
    message = f"trains something else than {listed(others, 2)}: {listed(parts, 4)}"
    keys = tuple(key for key, _, _ in found)
    for _, _, other in found:
        member.checked.document.sources.update(
            {path: source for path, source in other.checked.document.sources.items()
             if path not in member.checked.document.sources}
        )  # fmt: skip
    told = set(keys)
    member.checked.findings = [
        other for other in member.checked.findings if not (other.name in TOLD_HERE and told.issuperset(other.keys))
    ]
    return say(rule, subject, message, keys, related=tuple(related[:4]))


def _place(member: Member, key: str, value: str) -> Place:
    """Where the sibling sets a key, or the line of its presets."""
    from primus_lint.rules.locate import here, place_of, preset_line

    origin = here(member.subject.section.origin(key), member.subject.document)
    if origin is not None:
        return place_of(origin, f"{key} here")
    place = preset_line(member.subject.document, member.subject.section)
    return place._replace(message=f"{key} {value} here, from a preset or default")
