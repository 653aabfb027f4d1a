"""Ask Megatron-LM's own argument check: `megatron/training` as wheels of megatron-core from 0.17 on carry it.

`directory` is an unpacked wheel; the package of the oracle's Python (0.16.1) has no `megatron/training`. As a program
(`arguments.py DIRECTORY`) it writes `{"arguments": ...}`, what the parser takes, reads a JSON list of cases (`id`, `args`
by dest names, `world_size`, `env` as in `legality/labelled.jsonl`; `nulls`, dests that are None) from standard input, and writes for each case a line
`{"id", "stage", "error", "where"}`, all but the id None when it is accepted.

A case runs parser, `validate_args`, the micro-batch calculator, `core_transformer_config_from_args`, the layers of every
stage and the configs of DDP and optimizer. It makes no process groups, no module and no step. Taken as there: a GPU of
the asked architecture, TransformerEngine (stubs of ../shared/oracle), DeepEP, HybridEP and flash-linear-attention.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ORACLE = Path(__file__).resolve().parents[3] / "shared" / "oracle"
SPELLED = {"enable_gloo_process_groups": "use_gloo_process_groups"}  # d3528a21's name of the wheels' argument
SECONDS = 60  # longest time of a case


def ask(
    directory: Path, make: Callable[[dict[str, dict[str, Any]]], list[dict[str, Any]]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The cases that `make` makes of what the parser takes (see `_described`), each with its answer.

    Raises RuntimeError when the program does not run.
    """
    with tempfile.TemporaryFile("w+") as said:
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(directory.resolve())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        )  # fmt: skip
        assert program.stdin and program.stdout
        first = program.stdout.readline()
        cases = make(json.loads(first)["arguments"]) if first else []
        output, _ = program.communicate(json.dumps(cases) if first else None)
        answers = [json.loads(line) for line in output.splitlines()]
        if program.returncode or len(answers) != len(cases):
            said.seek(0)
            raise RuntimeError(said.read()[-2000:])
    return list(zip(cases, answers, strict=True))


def _described(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """For every dest: `group`, `kind` (flag, int, float, text), `list`, `default`, and `values`: settable constants of a
    flag, choices of the others."""
    found: dict[str, dict[str, Any]] = {}
    for group in parser._action_groups:
        for action in group._group_actions:
            default = action.default if isinstance(action.default, (int, float, str, list, type(None))) else None
            kind = getattr(action.type, "__name__", "text")
            row = found.setdefault(
                action.dest,
                {
                    "group": group.title, "kind": kind if kind in ("int", "float") else "text", "values": [],
                    "list": action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 0),
                    "default": default,
                },
            )  # fmt: skip
            if isinstance(action, argparse.BooleanOptionalAction):
                row.update(kind="flag", values=[True, False])
            elif action.nargs == 0:
                row["kind"] = "flag"
                row["values"] += [value for value in (action.const,) if isinstance(value, bool)]
            elif action.choices:
                row["values"] += [getattr(value, "name", value) for value in action.choices]  # or an enum
    found.pop("help", None)
    return found


def _command_line(args: dict[str, Any], parser: argparse.ArgumentParser) -> list[str]:
    """The flags that set these arguments. Raises ValueError for one that the parser cannot set."""
    actions: dict[str, list[argparse.Action]] = {}
    for action in parser._actions:
        actions.setdefault(action.dest, []).append(action)
    out: list[str] = []
    for key, value in args.items():
        rows = actions.get(key) or actions.get(SPELLED.get(key, ""))
        if rows is None:
            raise ValueError(f"no argument sets {key}")
        if isinstance(value, bool) and any(row.nargs == 0 for row in rows):
            flag = _flag(rows, value)
            if flag is None and rows[0].default != value:
                raise ValueError(f"no flag sets {key} to {value}")
            out += [flag] if flag and rows[0].default != value else []
        elif value is not None:
            row = next(row for row in rows if row.nargs != 0)
            several = isinstance(value, list) and row.nargs is not None
            words = (
                [str(item) for item in value] if several else [repr(value) if isinstance(value, list) else str(value)]
            )
            name = row.option_strings[-1]
            out += [f"{name}={words[0]}"] if len(words) == 1 else [name, *words]
    return out


def _flag(rows: list[argparse.Action], value: bool) -> str | None:
    for row in rows:
        if isinstance(row, argparse.BooleanOptionalAction):
            return next(name for name in row.option_strings if name.startswith("--no-") is not value)
        if row.nargs == 0 and row.const == value:
            return row.option_strings[-1]
    return None


def _known(function: Callable[..., Any], **values: Any) -> Any:
    """Call with those of the values that this version's function takes."""
    return function(**{name: value for name, value in values.items() if name in inspect.signature(function).parameters})


def _load(directory: str) -> argparse.ArgumentParser:
    """Import the wheel under the oracle's shims and the ones below; its parser."""
    sys.path[:0] = [directory, str(ORACLE)]
    if not hasattr(typing, "override"):  # the wheels want Python 3.12
        typing.override = lambda function: function  # type: ignore[attr-defined]
    import common  # type: ignore[import-not-found]
    import te_stub  # type: ignore[import-not-found]
    import torch

    common._install_fake_cuda(90)
    te_stub.install()
    import megatron.training.arguments as arguments

    if not str(arguments.__file__).startswith(directory):
        raise SystemExit(f"{arguments.__file__} is not the wheel's")
    import megatron.core.ssm.gated_delta_net as gated_delta_net
    import megatron.core.tensor_parallel.layers as layers
    import megatron.core.transformer.moe.fused_a2a as fused
    import megatron.core.transformer.moe.token_dispatcher as dispatcher
    import megatron.training.training  # noqa: F401
    from megatron.core import parallel_state

    layers._grad_accum_fusion_available = True
    gated_delta_net.HAVE_FLA = True
    for module in (fused, dispatcher):
        for name in ("HAVE_DEEP_EP", "HAVE_HYBRIDEP"):
            if hasattr(module, name):
                setattr(module, name, True)
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    parallel_state.get_pipeline_model_parallel_group = lambda *args, **kwargs: None
    parallel_state.get_pipeline_model_parallel_rank = lambda *args, **kwargs: 0
    parallel_state.is_pipeline_first_stage = lambda *args, **kwargs: True
    parallel_state.is_pipeline_last_stage = lambda *args, **kwargs: True
    parser: argparse.ArgumentParser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    return parser


def _stages(case: dict[str, Any], parser: argparse.ArgumentParser) -> Iterable[str]:
    """Run a case; the name of each stage comes before the stage runs."""
    import megatron.core.num_microbatches_calculator as calculator
    import megatron.training.arguments as arguments
    import megatron.training.global_vars as global_vars
    import megatron.training.training as training
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    yield "parse"
    args = parser.parse_args(_command_line(case["args"], parser))
    args.rank, args.world_size = 0, case["world_size"]
    for name in case.get("nulls", ()):  # no flag sets None; Primus writes it on the arguments
        setattr(args, name, None)
    yield "args"
    args = arguments.validate_args(args) or args
    global_vars._GLOBAL_ARGS = args
    yield "batch"
    _known(calculator.init_num_microbatches_calculator, **{**vars(args), "rank": 0})
    yield "config"
    config = arguments.core_transformer_config_from_args(args)
    yield "build"
    hybrid = args.hybrid_layer_pattern is not None  # its segments are cut by the pattern, not by this count
    for stage in range(0 if hybrid else args.pipeline_model_parallel_size):
        for chunk in range(args.virtual_pipeline_model_parallel_size or 1):
            vp_stage = chunk if args.virtual_pipeline_model_parallel_size else None
            count = _known(get_num_layers_to_build, config=config, vp_stage=vp_stage, pp_rank=stage)
            assert count >= 0, f"{count} layers on stage {stage}"
    yield "optim"
    training.get_megatron_optimizer_config(args)
    if not args.use_torch_fsdp2:  # which has a config of its own (training.py: get_model)
        names = {field.name for field in dataclasses.fields(DistributedDataParallelConfig)}
        DistributedDataParallelConfig(**{name: value for name, value in vars(args).items() if name in names})


def _answer(case: dict[str, Any], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Run a case in this process, which is spent then: environment, Megatron's globals and the parser's lists change."""
    import megatron.core.utils as utils
    import te_stub
    import torch
    from packaging.version import Version

    environment = {name: value for name, value in (case.get("env") or {}).items() if name.isupper()}
    stack = {"arch": 9, "te": "2.11.0", **{k: v for k, v in (case.get("env") or {}).items() if not k.isupper()}}
    os.environ.clear()
    os.environ.update({name: str(value) for name, value in environment.items()})
    os.environ.update(RANK="0", WORLD_SIZE=str(case["world_size"]), LOCAL_RANK="0", NVTE_PROJECT_BUILDING="1")
    torch.cuda.get_device_capability = lambda *args, **kwargs: (stack["arch"], 0)
    torch.cuda.get_device_properties = lambda *args, **kwargs: types.SimpleNamespace(
        major=stack["arch"], minor=0, multi_processor_count=132, total_memory=180 << 30, name="fake"
    )
    te_stub.NON_TN_FP8_GEMM = stack["arch"] >= 10
    utils._te_version = Version(stack["te"])
    utils.get_te_version = lambda: Version(stack["te"])
    out: dict[str, Any] = {"id": case["id"], "stage": None, "error": None, "where": None}
    said = io.StringIO()
    sys.stderr, sys.stdout = said, io.StringIO()
    stage = "parse"
    try:
        for stage in _stages(case, parser):  # noqa: B007
            pass
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = ([row for row in frames if "megatron" in row.filename.split("/")] or frames)[-1]
        # argparse exits; what it has to say it wrote before
        text = said.getvalue().strip().splitlines()[-1:] if isinstance(error, SystemExit) else [str(error)]
        place = "/".join(frame.filename.split("/")[-3:])
        out.update(
            stage=stage, error=f"{type(error).__name__}: {' '.join(''.join(text).split())}"[:300],
            where=f"{place}:{frame.lineno}",
        )  # fmt: skip
    return out


def _serve(directory: str) -> None:
    """Answer the cases of standard input, each in a child of its own."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Megatron prints
    parser = _load(directory)
    print(json.dumps({"arguments": _described(parser)}), file=out, flush=True)
    for case in json.load(sys.stdin):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            os.write(writer, json.dumps(_answer(case, parser)).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        crashed = {"id": case["id"], "stage": "crash", "error": f"status {status}", "where": None}
        print(text or json.dumps(crashed), file=out, flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder holds modules of other names
    _serve(sys.argv[1])
