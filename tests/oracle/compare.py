"""Our states of a (recipe, rank) pair beside the real ones."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from primus_lint.ledger import optimizer, states
from primus_lint.ledger.activations.kind import kind_of
from primus_lint.ledger.build import chunks_of
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.stage_activations import Activations
from tests.ledger.support import run_of

if TYPE_CHECKING:
    from primus_lint.ir.run import Run
    from tests.oracle.grid import Pair


def asked_version() -> str:
    """The ledger's version for the megatron-core that the oracle asks: 0.16.1, or a newer one put before it on the path."""
    try:
        return "core-0.16.1" if version("megatron-core").startswith("0.16.") else "d98e8a64"
    except PackageNotFoundError:
        return "core-0.16.1"


def ours(pair: Pair) -> dict[str, Any]:
    """The figures of megatron_state.py, computed by the ledger."""
    return states_of(run_of(pair.args, pair.world, version=asked_version()), pair.world, pair.rank)


def states_of(run: Run, world: int, rank: int) -> dict[str, Any]:
    """The same of a recipe that is lowered already."""
    sizes = Sizes(run)
    pp_rank = rank // (world // run.parallel.pp)
    stage = states.stage(sizes, pp_rank, chunks_of(run, pp_rank))
    distributed = run.optimizer.sharding == "distributed"
    dense_index, expert_index = states.indices(sizes, rank)
    if distributed:
        owned = stage.dense.owned(dense_index) + stage.expert.owned(expert_index)
    else:
        owned = stage.dense.real + stage.expert.real
    padded = stage.dense.padded + stage.expert.padded
    state = optimizer.state_bytes(sizes)
    tensors = optimizer.owned_tensors(sizes, stage, dense_index, expert_index)
    inverse = {name: 4 * tensors * (asked == "fp8") for name, asked in (
        ("exp_avg", run.optimizer.exp_avg_dtype), ("exp_avg_sq", run.optimizer.exp_avg_sq_dtype)
    )}  # inside the tensor  # fmt: skip
    return {
        "params": stage.dense.real + stage.expert.real,
        "param_buffer_bytes": padded * sizes.e if distributed else 0,
        "grad_buffer_bytes": padded * sizes.grad,
        "main": owned * state.main,
        "exp_avg": owned * state.exp_avg + inverse["exp_avg"],
        "exp_avg_sq": owned * state.exp_avg_sq + inverse["exp_avg_sq"],
        "buckets": sorted((b.numel, len(b.ends)) for g in stage.grids for b in g.buffers),
    }


def theirs(answer: dict[str, Any]) -> dict[str, Any]:
    """The same figures as the real objects have them."""
    state = answer["state_bytes"]
    return {
        "params": answer["params"],
        "param_buffer_bytes": answer["param_buffer_bytes"],
        "grad_buffer_bytes": answer["grad_buffer_bytes"],
        "main": answer["main_param_bytes"] + state.get("master_param", 0),
        "exp_avg": state.get("exp_avg", 0),  # a rank may own nothing
        "exp_avg_sq": state.get("exp_avg_sq", 0),
        "buckets": sorted((b["numel"], b["buckets"]) for b in answer["buffers"]),
    }


def our_activations(args: dict[str, Any], world: int) -> dict[str, int]:
    """Bytes kept by one micro-batch in the whole model (one stage), and by its last decoder layer.

    The oracle gives token ids (and positions) as inputs, so it does not count those that autograd keeps as they are
    (TP 1); and it lets the model make an int64 loss mask for MTP where training passes an fp32 one: mask and count (since
    0.19 the clamped count too) take 4 B more each.
    """
    asked = asked_version()
    run = run_of(args, world, version=asked)
    sizes = Sizes(run)
    activations = Activations(sizes)
    chunk = run.parallel.stages[0][0]  # type: ignore[index]
    kept = activations.chunk(chunk).bytes
    inputs = 8 * sizes.S if sizes.tp == 1 else 0
    if run.model.position_embedding == "learned_absolute":
        inputs += 8 * sizes.S
    counts = 1 if asked == "core-0.16.1" else 2
    kept += (4 * sizes.S + 4 * counts) * run.model.mtp_num_layers - inputs
    out = {"kept": kept}
    if run.recompute.granularity != "full":
        out["last layer"] = activations.layer(kind_of(run, run.model.num_layers - 1))
    return out


def their_activations(answer: dict[str, Any], layers: int, with_layer: bool) -> dict[str, int]:
    """The same from megatron_activations.py."""
    out = {"kept": answer["saved_bytes"]}
    if with_layer:
        prefix = f"decoder.{layers - 1}"
        out["last layer"] = sum(
            value for name, value in answer["by_module"].items() if name == prefix or name.startswith(prefix + ".")
        )
    return out
