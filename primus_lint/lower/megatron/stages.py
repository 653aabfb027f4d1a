"""Derived symbols of the pipeline split: virtual stages, layouts, uneven stages, hybrid segments (see `namespace`).

Sources: Megatron-LM `validate_args`, Megatron-Core `TransformerConfig.__post_init__`, `get_num_layers_to_build` and
`PipelineParallelLayerLayout`.
"""

from __future__ import annotations

from typing import Any

from primus_lint.formula import maximum
from primus_lint.ir.layout import LayoutError, Stages, split_counts, stages_from_counts, stages_from_layout, units_of
from primus_lint.lower.megatron import hybrid
from primus_lint.lower.megatron.namespace import Namespace, derived

_PP = "pipeline_model_parallel_size"
_VPP = (
    "num_virtual_stages_per_pipeline_rank",
    "num_layers_per_virtual_pipeline_stage",
    "pipeline_model_parallel_layout",
)


@derived(*_VPP)
def vpp(v: Namespace) -> Any:
    """Virtual stages per pipeline rank; 1 when the schedule is not interleaved (or the setting is illegal)."""
    layout = v["pipeline_model_parallel_layout"]
    if layout is not None:
        stages = v["stages"]
        return 1 if stages is None else len(stages[0])
    if v["hybrid_segments"] is not None:
        return max(v["hybrid_segments"] // v["pp"], 1)
    per_stage = v["num_layers_per_virtual_pipeline_stage"]
    if per_stage is not None:
        if not per_stage or v["pp"] < 1:
            return 1
        return max(v["split_layers"] // v["pp"] // per_stage, 1)
    stages_per_rank = v["num_virtual_stages_per_pipeline_rank"]
    return 1 if stages_per_rank is None else maximum(stages_per_rank, 1)


@derived(*_VPP)
def interleaved(v: Namespace) -> Any:
    """Whether the interleaved schedule runs."""
    return v["vpp"] > 1


@derived("patch_zero_bubble", "patch_primus_pipeline")
def own_schedule(v: Namespace) -> bool:
    """Whether Primus runs a pipeline schedule of its own in place of Megatron's."""
    return bool(v.get("patch_zero_bubble") or v.get("patch_primus_pipeline"))


@derived("hybrid_layer_pattern", "hybrid_override_pattern")
def hybrid_segments(v: Namespace) -> int | None:
    """Pipeline segments of a hybrid model's pattern; None for other models."""
    pattern = v.get("hybrid_layer_pattern")
    return None if pattern is None else pattern.split("/")[0].count("|") + 1


@derived("hybrid_layer_pattern", "hybrid_override_pattern")
def hybrid_problem(v: Namespace) -> str:
    """What is wrong with a hybrid model's pattern; "" when nothing is."""
    pattern = v.get("hybrid_layer_pattern")
    return "" if pattern is None else hybrid.problem(pattern, v.get("version") or "")


@derived("num_layers", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
def split_layers(v: Namespace) -> Any:
    """Units of an even pipeline split: the layers, plus one for the embedding and one for the loss when accounted."""
    extra = bool(v["account_for_embedding_in_pipeline_split"]) + bool(v["account_for_loss_in_pipeline_split"])
    return v["num_layers"] + extra


_EVEN_OFF = (
    "pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
    "hybrid_layer_pattern",
)  # fmt: skip


@derived("num_layers", _PP)
def even_split(v: Namespace) -> bool:
    """Whether the layers are dealt out evenly: no layout, no first or last stage of its own, no hybrid pattern."""
    return all(v.get(key) is None for key in _EVEN_OFF)


@derived("pipeline_model_parallel_layout")
def layout_units(v: Namespace) -> list[str] | None:
    """Units of each virtual stage of the layout, one string each; None without a layout or when it does not parse."""
    layout = v["pipeline_model_parallel_layout"]
    try:
        return None if layout is None else units_of(layout)
    except LayoutError:
        return None


@derived("pipeline_model_parallel_layout")
def layout_text(v: Namespace) -> str | None:
    """All units of the layout in order, without stage borders."""
    return None if v["layout_units"] is None else "".join(v["layout_units"])


@derived("pipeline_model_parallel_layout", "mtp_num_layers", _PP)
def layout_mtp_problem(v: Namespace) -> str:
    """What Megatron refuses about the MTP layers of the layout, in a few words; "" when nothing."""
    units, depths = v["layout_units"], v["mtp"]
    placed = v["layout_text"].count("m")
    if placed != depths:
        return f"the layout places {placed or 'no'} MTP layer{'s' * (placed > 1)} (m), mtp_num_layers is {depths}"
    if "t" in v["layout_text"].partition("m")[2]:
        return "a layer (t) follows an MTP layer (m) in the layout"
    for number, stage in enumerate(units):
        if "m" in stage and number < len(units) - v["pp"]:
            return "an MTP layer (m) lies outside the last virtual stage of its pipeline rank"
        if "m" in stage and stage.count("m") != depths:
            return "the MTP layers (m) are spread over several stages"
    return ""


@derived("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "num_layers")
def middle_layers(v: Namespace) -> Any:
    """Layers left after a first and last stage of their own."""
    return (
        v["num_layers"] - (v["decoder_first_pipeline_num_layers"] or 0) - (v["decoder_last_pipeline_num_layers"] or 0)
    )


@derived("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", _PP)
def middle_stages(v: Namespace) -> Any:
    """Pipeline ranks left after a first and last stage of their own."""
    own = [v["decoder_first_pipeline_num_layers"], v["decoder_last_pipeline_num_layers"]]
    return v["pp"] - sum(count is not None for count in own)


@derived("microbatch_group_size_per_vp_stage", _PP)
def vpp_group(v: Namespace) -> Any:
    """Micro batches of one group of the interleaved schedule: pp when unset."""
    value = v["microbatch_group_size_per_vp_stage"]
    return v["pp"] if value is None else value


@derived(
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    _PP,
    "num_layers",
    "num_virtual_stages_per_pipeline_rank",
)
def stages(v: Namespace) -> Stages | None:
    """The stage table; None when the split is illegal (the rules say why)."""
    try:
        layout = v["pipeline_model_parallel_layout"]
        if layout is not None:
            return stages_from_layout(layout, v["pp"])
        if v["hybrid_segments"] is not None and v["hybrid_segments"] > 1:
            return _hybrid_stages(v)
        counts = split_counts(
            v["num_layers"],
            v["pp"],
            v["vpp"],
            first=v["decoder_first_pipeline_num_layers"],
            last=v["decoder_last_pipeline_num_layers"],
            account_embedding=bool(v["account_for_embedding_in_pipeline_split"]),
            account_loss=bool(v["account_for_loss_in_pipeline_split"]),
        )
    except (LayoutError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError):
        return None
    return stages_from_counts(counts, v["mtp"])


def _hybrid_stages(v: Namespace) -> Stages:
    """Segment k of the pattern lies on rank k % pp. Raises LayoutError when the segments do not divide by pp."""
    sizes = [len(segment) for segment in hybrid.split(v["hybrid_layer_pattern"]).segments]
    if len(sizes) % v["pp"]:
        raise LayoutError("stage-count", f"{len(sizes)} segments do not divide by {v['pp']} pipeline ranks")
    return stages_from_counts([sizes[rank :: v["pp"]] for rank in range(v["pp"])], v["mtp"])
