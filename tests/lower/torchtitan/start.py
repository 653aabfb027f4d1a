"""Start the real torchtitan v0.2.2 Trainer on CPU with fake ranks, once for each line of standard input.

A line is {"args": {dotted key: value}, "world_size": N}; the answer says how far the program came: {"ok": true}, or the
class and text of the exception. Tokenizer, data, device statistics and torch.compile are replaced; everything that
judges the configuration is the real code. Runs under an interpreter that has torchtitan.
"""

from __future__ import annotations

import logging
import os
import traceback
import warnings
from typing import Any

from children import answer_each
from without_triton import import_torchtitan

os.environ.update(LOCAL_RANK="0", RANK="0", TORCHDYNAMO_DISABLE="1")
warnings.filterwarnings("ignore")


def prepare() -> None:
    import_torchtitan()
    import torch

    torch.compile = lambda model, **_: model  # type: ignore[assignment]
    torch.set_num_threads(1)
    histc = torch.histc
    torch.histc = lambda values, **more: histc(values.float(), **more).to(values.dtype)  # type: ignore[assignment]
    import torchtitan.components.metrics as metrics
    from torch.testing._internal.distributed import fake_pg
    from torchtitan.protocols import train_spec

    assert fake_pg
    logging.disable(logging.CRITICAL)

    class Monitor:
        device_name = "cpu"

        def get_peak_stats(self) -> Any:
            return metrics.DeviceMemStats(0, 0, 0, 0, 0, 0)

        def reset_peak_stats(self) -> None:
            pass

    metrics.build_device_memory_monitor = Monitor
    real = train_spec.get_train_spec

    def spec_of(name: str) -> Any:
        spec = real(name)
        spec.build_tokenizer_fn = spec.build_dataloader_fn = None
        return spec

    train_spec.get_train_spec = spec_of


def configure(args: dict[str, Any]) -> Any:
    from torchtitan.config import JobConfig

    config = JobConfig()
    config.comm.mode = "fake_backend"
    config.model.name, config.model.flavor = "llama3", "debugmodel"
    for key, value in args.items():
        *path, name = key.split(".")
        target = config
        for part in path:
            target = getattr(target, part)
        setattr(target, name, value)
    return config


def overrides(args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(fields of the configuration, arguments of the model)."""
    fields = ("model.name", "model.flavor", "model.converters")
    of_model = {key[6:]: value for key, value in args.items() if key.startswith("model.") and key not in fields}
    return {key: value for key, value in args.items() if key[6:] not in of_model}, of_model


def start(args: dict[str, Any], world_size: int) -> None:
    """Build the trainer, and where a CPU can run the first forward and backward pass."""
    import torch
    from torchtitan.protocols import train_spec
    from torchtitan.train import Trainer

    os.environ["NGPU"] = os.environ["WORLD_SIZE"] = str(world_size)
    fields, of_model = overrides(args)
    config = configure(fields)
    model_args = train_spec.get_train_spec(config.model.name).model_args[config.model.flavor]
    for key, value in of_model.items():
        *path, name = key.split(".")
        target = model_args
        for part in path:
            target = getattr(target, part)
        setattr(target, name, value)
    real = train_spec.get_train_spec

    def with_overrides(name: str) -> Any:
        spec = real(name)
        spec.model_args = {**spec.model_args, config.model.flavor: model_args}
        return spec

    train_spec.get_train_spec = with_overrides
    trainer = Trainer(config)
    parallel = trainer.parallel_dims
    plain = getattr(trainer.model_args, "attn_type", "") == "sdpa" and config.model.name in (
        "llama3",
        "llama4",
        "deepseek_v3",
    )
    if parallel.pp_enabled or parallel.cp_enabled or not plain or config.optimizer.early_step_in_backward:
        return
    tokens = torch.zeros(config.training.local_batch_size, config.training.seq_len, dtype=torch.int64)
    with trainer.train_context(), trainer.maybe_enable_amp:
        prediction = trainer.model_parts[0](tokens)
        trainer.loss_fn(prediction, tokens).backward()


def started(question: dict[str, Any]) -> dict[str, Any]:
    start(question["args"], question["world_size"])
    return {"ok": True}


def stopped(error: BaseException) -> dict[str, Any]:
    """The class and text of an exception, and the function that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.name}:{last.lineno}"
    return {"ok": False, "error": type(error).__name__, "text": str(error)[:300], "where": where}


if __name__ == "__main__":
    prepare()
    answer_each(started, stopped, {"ok": None, "error": "died"})
