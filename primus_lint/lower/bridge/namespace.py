"""The namespace of a Megatron-Bridge recipe: dotted keys of its configuration, and short symbols.

`train.global_batch_size` and its like are the fields of the finished ConfigContainer, as far as they are known; the
keys of the section are there under their own names as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable

SYMBOLS: dict[str, Callable[[Any], Any]] = {}
KEYS_OF: dict[str, tuple[str, ...]] = {}

# Argument of the recipe functions -> the field that it sets.
FIELDS = {
    "tensor_model_parallel_size": "model.tensor_model_parallel_size",
    "pipeline_model_parallel_size": "model.pipeline_model_parallel_size",
    "context_parallel_size": "model.context_parallel_size",
    "expert_model_parallel_size": "model.expert_model_parallel_size",
    "expert_tensor_parallel_size": "model.expert_tensor_parallel_size",
    "virtual_pipeline_model_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "sequence_parallel": "model.sequence_parallel",
    "seq_length": "model.seq_length",
    "train_iters": "train.train_iters",
    "global_batch_size": "train.global_batch_size",
    "micro_batch_size": "train.micro_batch_size",
    "eval_interval": "train.eval_interval",
    "save_interval": "checkpoint.save_interval",
    "pretrained_checkpoint": "checkpoint.pretrained_checkpoint",
    "use_megatron_fsdp": "ddp.use_megatron_fsdp",
    "lr_warmup_iters": "scheduler.lr_warmup_iters",
    "lr_decay_iters": "scheduler.lr_decay_iters",
    "packed_sequence": "packed_sequence",
    "peft": "peft",
}
ARGUMENT_OF = {field: argument for argument, field in FIELDS.items()}


class BridgeNamespace(Namespace):
    """Dotted fields and symbols of one recipe; a field that nobody knows is None."""

    __slots__ = ()
    symbols = SYMBOLS
    keys_of = KEYS_OF

    def __missing__(self, name: str) -> Any:
        return super().__missing__(name) if name in SYMBOLS or "." not in name else None


def _field(name: str, *fields: str) -> None:
    """A symbol that is the first known one of some fields."""

    def value(v: Namespace) -> Any:
        return next((v[field] for field in fields if v[field] is not None), None)

    SYMBOLS[name] = value
    KEYS_OF[name] = tuple(key for field in fields for key in (ARGUMENT_OF.get(field, field), field))


def symbol(*keys: str) -> Callable[[Callable[[Namespace], Any]], Callable[[Namespace], Any]]:
    """Register a symbol with the configuration keys that it comes from."""

    def register(function: Callable[[Namespace], Any]) -> Callable[[Namespace], Any]:
        SYMBOLS[function.__name__] = function
        KEYS_OF[function.__name__] = keys
        return function

    return register


_field("tp", "model.tensor_model_parallel_size")
_field("pp", "model.pipeline_model_parallel_size")
_field("cp", "model.context_parallel_size")
_field("ep", "model.expert_model_parallel_size")
_field("mbs", "train.micro_batch_size")
_field("gbs", "train.global_batch_size")
_field("seq", "model.seq_length")
_GRID = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


@symbol(*_GRID)
def dense_grid(v: Namespace) -> Any:
    """Ranks of one model replica."""
    return v["tp"] * v["pp"] * v["cp"]


@symbol("world_size", *_GRID)
def dp(v: Namespace) -> Any:
    """Data-parallel size; None without a world size."""
    return None if v["world_size"] is None else v["world_size"] // v["dense_grid"]


@symbol("flavor")
def own_degrees(v: Namespace) -> str:
    """Which degrees the recipe function sets whatever it is given, as a clause of a sentence; "" for none."""
    own = v.get("made.own_degrees")
    return f" ({v['flavor']} itself sets {own})" if own else ""


@symbol("use_megatron_fsdp", "dist.use_megatron_fsdp", "ddp.use_megatron_fsdp")
def fsdp(v: Namespace) -> bool:
    """Whether Megatron-FSDP shards the model."""
    return bool(v["ddp.use_megatron_fsdp"] or v["dist.use_megatron_fsdp"])


@symbol("checkpoint.save", "checkpoint.load", "skip_save")
def has_checkpoint(v: Namespace) -> bool:
    """Whether a folder to save to or load from is set: every recipe sets one."""
    return v["checkpoint.save"] is not None or v["checkpoint.load"] is not None


for _name, _argument in (("heads", "num_attention_heads"), ("groups", "num_query_groups"), ("experts", "num_experts")):
    _field(_name, "of_model." + _argument)
    KEYS_OF[_name] = ("flavor", "recipe")
