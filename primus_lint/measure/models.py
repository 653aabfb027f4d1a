"""A recipe to measure for a model that is named without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.measure.errors import MeasureError

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from primus_lint.pipeline import Options

DEFAULTS = {"bf16": True, "micro_batch_size": 1, "seq_length": 4096}


def recipe_of(model: str, options: Options) -> Run:
    """The recipe of a model of the shipped table; `options.set_values` change it. Raises MeasureError."""
    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron import lower
    from primus_lint.lower.megatron.versions import DEFAULT, canonical
    from primus_lint.readers.batch import RequestError, read_batch
    from primus_lint.source.scalars import resolve_plain

    args: dict[str, Any] = dict(DEFAULTS)
    args.update({key: resolve_plain(text) for key, text in options.set_values})
    try:
        document = read_batch({"framework": "megatron", "model": model, "args": args})
    except RequestError as error:
        raise MeasureError(str(error)) from None
    target = Target(options.gpu, options.world_size, options.gpus_per_node or 8)
    version = canonical(options.framework_version) if options.framework_version else DEFAULT
    run = lower(document.sections[0], target, version or DEFAULT, "megatron").run
    if run is None:
        raise MeasureError(f"model {model} with these settings is no complete recipe")
    return run
