"""A row of a ground-truth table -> the recipe it states, or the reason why it cannot be scored.

What a row leaves out is never filled with a default in silence: `Row.missing` names it. What its source settles (a
framework's fixed behaviour, a model's public shape) is listed here with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from . import ground_truth_bridge, ground_truth_pax, ground_truth_pilot
from .ground_truth_facts import (
    BY_OPERATION,
    DEPTHS,
    ENVIRONMENTS,
    EVERY_OTHER_LAYER,
    FLASH_ATTENTION,
    FLAT_PARAMETERS,
    FRAMEWORKS,
    FSDP,
    GPUS,
    IN_LINE,
    LAYERS,
    MODELS,
    MPT,
    NO_MODEL_PARALLELISM,
    NO_PIPELINE,
    ONE_MICRO_BATCH,
    OPERATIONS,
    PRECISIONS,
    RECOMPUTE,
    REPLACED,
    SEQUENCES,
    SKIPPED,
    SOURCES,
)

DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "mbs": "micro_batch_size", "gbs": "global_batch_size", "seq_len": "seq_length",
}  # fmt: skip


@dataclass
class Row:
    """One scored row: the request for the linter, what the row does not state, and what it measured."""

    id: str
    source: str
    group: tuple[str, ...]  # (source, model, gpu, gpus): rankings are compared inside it
    raw: dict[str, str]
    request: dict[str, Any] | None = None
    missing: list[str] = field(default_factory=list)
    reason: str | None = None  # why it is not scored
    speed_reason: str | None = None  # why its speed is not scored

    @property
    def complete(self) -> bool:
        """Every field of design 4.5 stated (recompute: stated or settled)."""
        return self.request is not None and not self.missing and self.reason is None


def start(source: str, table: Any) -> Any:
    """The entry of a table whose name a source starts with."""
    return next((table[key] for key in table if source.startswith(key)), None)


def build(raw: dict[str, str]) -> Row:
    """The row as a batch request (see design 4.3)."""
    source = raw["source"]
    row = Row(raw["id"], source, (source, raw["model"], raw["gpu"], raw["num_gpus"]), raw)
    if start(source, SOURCES) is None:
        source = start(raw["framework"], FRAMEWORKS) or source
    profile = start(source, SOURCES)
    if profile is None:
        row.reason = "source without a profile"
        return row
    for word, reason in SKIPPED:
        if word in raw["model"] or word in raw["other"]:
            row.reason = reason
            return row
    if "offload" in raw["other"] and "alpha=0.000" not in raw["other"] and "act_cpu_offload=False" not in raw["other"]:
        row.reason = "offloading"
        return row
    args: dict[str, Any] = {"max_position_embeddings": 1 << 20, **profile}
    model = _model(raw, args)
    if model is None and "num_layers" not in args:
        row.reason = f"model {raw['model']!r} has no known shape"
        return row
    if any(name not in args for name in ("num_layers", "hidden_size", "num_attention_heads")) and model is None:
        row.reason = "layers, hidden size or heads are not stated"
        return row
    if model is not None and not model.startswith("gpt3"):  # of the models with a public shape GPT-3 alone drops out
        args = {"hidden_dropout": 0.0, "attention_dropout": 0.0, **args}
    _degrees(raw, args, row, source)
    if args.get("position_embedding_type") == "learned_absolute" and "seq_length" in args:
        args["max_position_embeddings"] = args["seq_length"]  # the table of positions is a parameter
    _precision(raw, args, row)
    if not (
        ground_truth_pax.settle(raw, args)
        or ground_truth_bridge.settle(raw, args)
        or ground_truth_pilot.settle(raw, args)
    ):
        _recompute(raw, args, row)
    _features(raw, args)
    gpus = raw["num_gpus"]
    if not gpus:
        row.missing.append("num_gpus")
    if not (raw["measured_tokens_per_s_per_gpu"] or raw["measured_iter_s"]):
        row.speed_reason = "no measured speed"
    if row.reason is None and gpus:
        row.request = {
            "id": row.id, "framework": "megatron", "version": None, "model": model, "args": args,
            "env": _environment(source), "replaced": _replaced(raw, source, args),
            "stack": {"flash_attn": (start(source, FLASH_ATTENTION) or {}).get(raw["gpu"])},
            "target": {"gpu": GPUS.get(raw["gpu"], raw["gpu"]), "world_size": int(gpus),
                       "gpus_per_node": int(raw["gpus_per_node"] or 8)},
        }  # fmt: skip
    return row


def _replaced(raw: dict[str, str], source: str, args: dict[str, Any]) -> dict[str, Any]:
    """Parts of the run that no argument of Megatron-LM says."""
    found = dict(start(source, REPLACED) or {})
    if args.get("use_torch_fsdp2") and source.startswith(FLAT_PARAMETERS):
        found["optimizer"] = {"sharding": "fsdp1"}
    if raw["recompute"] in OPERATIONS:
        found["recompute"] = {**found.get("recompute", {}), **BY_OPERATION}
    return found


def _environment(source: str) -> dict[str, str] | None:
    """The environment of a rank, where the source's is not what a launcher usually sets."""
    if source == ground_truth_pilot.SOURCE:
        return ground_truth_pilot.ENVIRONMENT
    return start(source, ENVIRONMENTS) or ({} if source.startswith(IN_LINE) else None)


def _model(raw: dict[str, str], args: dict[str, Any]) -> str | None:
    """Name of the model table; shapes that it lacks go into `args`."""
    name = raw["model"]
    known = MODELS.get(name)
    text = raw["other"].replace("=", "")
    for pattern, key in (
        (r"\b(?:L|layers)(\d+)\b", "num_layers"), (r"\b(?:h|hidden)(\d+)\b", "hidden_size"),
        (r"\bheads(\d+)\b", "num_attention_heads"), (r"\bffn(\d+)\b", "ffn_hidden_size"), (r"\bvocab(\d+)\b", "vocab_size"),
    ):  # fmt: skip
        found = re.search(pattern, text) or (re.search(pattern, name) if key != "vocab_size" else None)
        if found:
            args[key] = int(found.group(1))
    thousands = re.search(r"\bvocab(\d+)k\b", text)
    if thousands and raw["source"].startswith("VocabularyParallelism"):  # 32k is 32,768 there; BLOOM's 250k is 250,680
        args["vocab_size"] = int(thousands.group(1)) * 1024
    if isinstance(known, dict):
        args.update({key: value for key, value in known.items() if key not in args or key == "vocab_size"})
        if "heads=h/128" in raw["other"]:
            args["num_attention_heads"] = args["hidden_size"] // 128
        return str(args.pop("like"))
    if name in MPT:
        hidden, heads, layers = MPT[name]
        args.update(
            num_layers=layers, hidden_size=hidden, num_attention_heads=heads, vocab_size=50368, add_bias_linear=False,
            normalization="LayerNorm", position_embedding_type="learned_absolute", hidden_dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        return None
    if name.startswith("Llama-arch"):  # the playbook's models: multi-head attention, the 1B with a tied head
        args.update(
            swiglu=True, normalization="RMSNorm", position_embedding_type="rope", add_bias_linear=False,
            untie_embeddings_and_output_weights="8B" in name, hidden_dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        stages = int(raw["pp"] or 1)
        if stages > 1 and all(key in args for key in ("num_layers", "hidden_size", "ffn_hidden_size", "vocab_size")):
            args["pipeline_model_parallel_layout"] = by_cost(args, stages)
        return None
    return known


def by_cost(args: dict[str, Any], stages: int) -> str:
    """nanotron's pipeline split as a layout: blocks are dealt out by the elements of their matrices, the head counted, the
    embedding not; a block that passes a rank's share of the sum is its last (`DistributedTrainer.build_model`)."""
    hidden, layers = args["hidden_size"], args["num_layers"]
    layer, head = 4 * hidden * hidden + 3 * args["ffn_hidden_size"] * hidden, args["vocab_size"] * hidden
    total, done, rank = layers * layer + head, 0, 0
    ranks = [""] * stages
    for unit, cost in [("E", 0), *[("t", layer)] * layers, ("L", head)]:
        ranks[rank] += unit
        done += cost
        if done > total * (rank + 1) / stages and rank < stages - 1:
            rank += 1
    return "|".join(ranks)


def _degrees(raw: dict[str, str], args: dict[str, Any], row: Row, source: str) -> None:
    for column, key in DEGREES.items():
        text = raw[column]
        settled = (column in ("tp", "pp") and source.startswith(NO_MODEL_PARALLELISM)) or (
            column == "pp" and source.startswith(NO_PIPELINE)
        )
        if text:
            args[key] = int(text)
        elif settled or column in ("cp", "ep"):
            args[key] = 1
        else:
            row.missing.append(column)
    if source.startswith("NVIDIA JAX") and "pp" in row.missing and _fills(raw):
        args["pipeline_model_parallel_size"] = 1
        row.missing.remove("pp")
    if source.startswith(ONE_MICRO_BATCH) and "gbs" in row.missing and raw["mbs"] and raw["num_gpus"]:
        ranks = int(raw["num_gpus"]) // (int(raw["tp"] or 1) * int(raw["pp"] or 1) * int(raw["cp"] or 1))
        args["global_batch_size"] = int(raw["mbs"]) * ranks
        row.missing.remove("gbs")
    length = start(source, SEQUENCES)
    if length is not None and "seq_len" in row.missing:
        args["seq_length"] = length
        row.missing.remove("seq_len")
    if raw["etp"]:
        args["expert_tensor_parallel_size"] = int(raw["etp"])
    elif raw["ep"] not in ("", "1"):
        args["expert_tensor_parallel_size"] = 1
    vpp = int(raw["vpp"] or 1)
    if vpp > 1 and args.get("pipeline_model_parallel_size", 1) > 1:
        args["num_virtual_stages_per_pipeline_rank"] = vpp
    layers, chunks = LAYERS.get(raw["model"].partition(" (")[0]), vpp * int(raw["pp"] or 1)
    if source.startswith("NVIDIA") and layers and layers % chunks and (layers + 2) % chunks == 0:
        # the only split that these recipes can have: embedding and loss count as a layer each (405B, Qwen3-235B)
        args.update(account_for_embedding_in_pipeline_split=True, account_for_loss_in_pipeline_split=True)
    tp = args.get("tensor_model_parallel_size", 1)
    if raw["seq_parallel"] == "yes":
        args["sequence_parallel"] = True
    elif raw["seq_parallel"] == "no" or tp == 1:
        args["sequence_parallel"] = False
    if source.startswith("InternEvo") and "gbs" in row.missing and "micro_num" in raw["other"]:
        count = int(re.search(r"micro_num=(\d+)", raw["other"]).group(1))  # type: ignore[union-attr]
        args["global_batch_size"] = count * int(raw["mbs"]) * int(raw["num_gpus"]) // tp
        row.missing.remove("gbs")
    if not raw["gpu"]:
        row.missing.append("gpu")


def _fills(raw: dict[str, str]) -> bool:
    """Whether data, sharding and tensor degrees alone make up all GPUs, so that nothing is left for a pipeline."""
    found = re.fullmatch(r"DP(\d+) FSDP(\d+)", raw["dp_shard"])
    return found is not None and int(found[1]) * int(found[2]) * int(raw["tp"] or 1) == int(raw["num_gpus"])


def _precision(raw: dict[str, str], args: dict[str, Any], row: Row) -> None:
    found = PRECISIONS.get(raw["precision"].lower())
    if not raw["precision"]:
        row.missing.append("precision")
        args["bf16"] = True  # a 16-bit run either way, when it is scored outside the complete rows
    elif found is None:
        row.reason = f"precision {raw['precision']!r} is not modelled"
    else:
        args.update(found)
        args.setdefault("bf16", not args.get("fp16"))
    sharding = raw["dp_shard"].lower()
    if sharding.startswith("zero1=") and sharding != "zero1=-1":  # InternEvo: shards of so many ranks
        ranks = int(raw["num_gpus"]) // (int(raw["tp"] or 1) * int(raw["pp"] or 1))
        args["num_distributed_optimizer_instances"] = max(ranks // int(sharding[6:]), 1)
    if sharding.startswith(("zero1", "fsdp1 ")) or raw["dist_opt"] == "yes":
        args["use_distributed_optimizer"] = True
    elif sharding.startswith("zero0"):
        args["use_distributed_optimizer"] = False
    elif sharding.startswith(("fsdp", "full_shard", "zero3", "hsdp")):
        args.update(FSDP)
        if sharding.startswith("hsdp"):  # a replica a node
            args["data_parallel_replicate_degree"] = int(raw["num_gpus"]) // 8
    elif sharding.startswith("dp") and "fsdp1" not in sharding:
        args.update(FSDP)


def _recompute(raw: dict[str, str], args: dict[str, Any], row: Row) -> None:
    stated = RECOMPUTE.get(raw["recompute"])
    if raw["recompute"] == EVERY_OTHER_LAYER and raw["model"] in DEPTHS:
        args.update(RECOMPUTE["full"], recompute_method="block", recompute_num_layers=DEPTHS[raw["model"]] // 2)
    elif raw["recompute"] in OPERATIONS:
        return  # `_replaced`
    elif stated is not None:
        args.update(stated)
    else:
        row.missing.append("recompute" if not raw["recompute"] else f"recompute ({raw['recompute']})")


def _features(raw: dict[str, str], args: dict[str, Any]) -> None:
    """Features that `other` names."""
    text = raw["other"]
    if "LossFusion" in text or "DeepEP" in text or "SyncFree" in text or "launch opt" in text or "MBS14" in text:
        args.update(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")  # cumulative list of the blog
    if any(word in text for word in ("DeepEP", "SyncFree", "launch opt", "MBS14")):
        args.update(moe_token_dispatcher_type="flex", moe_enable_deepep=True)
    if "async TP" in text:
        args["tp_comm_overlap"] = True
    if any(word in text for word in ("SyncFree", "launch opt", "MBS14")):
        args.update(moe_permute_fusion=True)
