"""What a recipe that loads a checkpoint may change: does the checkpoint still open?

Sources: Megatron-LM `checkpointing.py`. The format `torch` has one file for each model-parallel rank and opens with
the same degrees and the same split alone; the distributed formats (`torch_dist`, `torch_dcp`, `fsdp_dtensor`, `zarr`)
are resharded at load, as long as every tensor keeps its whole shape: the padded vocabulary is one. The state of the
optimizer is saved sharded or whole, depending on the distributed optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import round_up

if TYPE_CHECKING:
    from collections.abc import Mapping

TP = "tensor_model_parallel_size"
MODEL_DEGREES = (TP, "pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size")
SPLIT = (
    "num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage", "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
)  # fmt: skip
DEGREES_WHEN = (
    "a checkpoint of the format `torch` is loaded (it opens with the same degrees alone), or of another format and the "
    "padded vocabulary changes with the tensor-parallel size"
)
SPLIT_WHEN = "a checkpoint of the format `torch` is loaded"
OPTIMIZER_WHEN = "a checkpoint is loaded with its optimizer state"
FORMAT_WHEN = "a checkpoint is loaded"


def loads(given: Mapping[str, Any]) -> bool:
    """Whether the recipe starts from a checkpoint."""
    return bool(given.get("load") or given.get("pretrained_checkpoint"))


def is_resharded(given: Mapping[str, Any]) -> bool:
    return (given.get("ckpt_format") or "torch_dist") != "torch"


def vocabulary_stays(tp: int, given: Mapping[str, Any], model: Any) -> bool:
    """Whether the padded vocabulary is the same at another tensor-parallel size (unknown: only at the same)."""
    now = int(given[TP])
    vocabulary = model.vocab_size
    if vocabulary is None:
        return tp == now
    divisor = model.vocab_divisor
    return bool(round_up(vocabulary, divisor * now) == round_up(vocabulary, divisor * tp))


def breaks(key: str, new: Any, given: Mapping[str, Any], model: Any) -> bool:
    """Whether the checkpoint that a recipe loads may not open after one change."""
    if not loads(given):
        return False
    if key in ("use_torch_fsdp2", "use_megatron_fsdp", "ckpt_format"):
        return True
    if key == "use_distributed_optimizer":
        return not given.get("no_load_optim")
    if key in SPLIT or key in MODEL_DEGREES:
        if not is_resharded(given):
            return True
        return key == TP and not vocabulary_stays(new, given, model)
    return False


def say(changes: Mapping[str, Any], given: Mapping[str, Any], model: Any) -> str | None:
    """One line about the checkpoint of a changed recipe; None when it loads none."""
    if not loads(given):
        return None
    name = given.get("load") or given.get("pretrained_checkpoint")
    broken = [key for key, value in changes.items() if breaks(key, value, given, model)]
    if broken:
        return f"the checkpoint {name} may not open: {', '.join(broken)} changed (format {given.get('ckpt_format')})"
    moved = [key for key in changes if key in SPLIT or key in MODEL_DEGREES]
    if moved:
        kept = "" if model.vocab_size is None or TP not in moved else ", the padded vocabulary stays"
        return f"the checkpoint {name} still opens: {given.get('ckpt_format')} is resharded at load{kept}"
    return f"the checkpoint {name} still opens: nothing that it depends on changed"
