"""Sizes: the symbols of all formulas of the ledger, computed once per recipe.

Values are Python integers, or broadcast NumPy arrays for a grid of recipes. Symbols follow the field: h hidden size,
A attention heads, k key/value groups, d head dimension, f dense width, g expert width, E experts, K top-k.
`S` is the number of tokens of one micro-batch on a context-parallel rank, `T` the number a tensor-parallel rank holds
outside attention and MLP: S/tp under sequence parallelism, else S.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, maximum, round_up, where

if TYPE_CHECKING:
    from collections.abc import Callable

    from primus_lint.ir.run import Run

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}


class Sizes:
    """See the module's docstring. `e`, `grad`, `act`: bytes of an element of a stored weight, gradient, activation.

    `memo` holds what the ranks and chunks of the recipe share (see `once`)."""

    __slots__ = (
        "A",
        "Aq",
        "E",
        "K",
        "S",
        "T",
        "V",
        "act",
        "cp",
        "d",
        "dp",
        "dpcp",
        "dv",
        "e",
        "edp",
        "ep",
        "etp",
        "f",
        "fc1",
        "g",
        "grad",
        "h",
        "k",
        "kq",
        "local_experts",
        "m",
        "mbs",
        "memo",
        "pp",
        "run",
        "scalar",
        "seq",
        "shared",
        "sp",
        "tp",
        "vpp",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        model, parallel, batch = run.model, run.parallel, run.batch
        self.run = run
        self.memo: dict[Any, Any] = {}
        self.tp, self.pp, self.vpp, self.cp = parallel.tp, parallel.pp, parallel.vpp, parallel.cp
        self.ep, self.etp, self.dp, self.edp = parallel.ep, parallel.etp, parallel.dp, parallel.edp
        self.sp = parallel.sequence_parallel
        self.dpcp: Any = None if self.dp is None else self.dp * self.cp
        self.mbs, self.seq, self.m = batch.micro_batch_size, batch.seq_length, batch.num_microbatches
        self.h = model.hidden_size
        self.A, self.k, self.d = model.num_attention_heads, model.num_query_groups, model.kv_channels
        self.dv = model.mla.v_head_dim if model.mla is not None else model.kv_channels
        self.f = model.ffn_hidden_size
        self.fc1 = 2 if model.gated else 1  # width of fc1 over the width of fc2's input
        self.act = 4 if run.precision.params_dtype == "fp32" else 2
        fsdp2 = run.optimizer.sharding == "fsdp2"
        self.e = 4 if fsdp2 and run.args.get("use_fsdp2_fp32_param_optimizer") else self.act
        # torch FSDP2 has no gradient buffer: gradients have the dtype of the parameters
        self.grad = self.e if fsdp2 else DTYPE_BYTES[run.precision.grads_dtype]
        self.S: Any = self.seq // self.cp * self.mbs
        self.T: Any = where(self.sp, self.S // self.tp, self.S)
        self.Aq: Any = self.A // self.tp  # query heads of a rank
        self.kq: Any = maximum(self.k // self.tp, 1)  # key/value groups of a rank
        vocab = model.vocab_size
        self.V: Any = None if vocab is None else round_up(vocab, model.vocab_divisor * self.tp)
        moe = model.moe
        if moe is not None:
            self.E, self.K, self.g = moe.num_experts, moe.router_topk, moe.ffn_hidden_size
            self.local_experts: Any = self.E // self.ep
            self.shared = moe.shared_expert_intermediate_size
        else:
            self.E = self.K = self.g = self.shared = 0
            self.local_experts = 0
        knobs = (
            self.tp, self.cp, self.ep, self.etp, self.mbs, self.seq, self.dp, self.edp, self.m,
            run.recompute.num_layers, run.batch.global_batch_size, run.optimizer.instances, self.sp,
            run.optimizer.overlap_grad_reduce, run.optimizer.overlap_param_gather, run.kernels.tp_comm_overlap,
        )  # fmt: skip
        self.scalar = all(knob is None or is_scalar(knob) for knob in knobs)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for a key."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]
