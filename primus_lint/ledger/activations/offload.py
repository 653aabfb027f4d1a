"""Fine-grained activation offloading: kept tensors that move to host memory until backward.

Each name of `offload_modules` wraps one module; what autograd saves inside it goes to the host, tensors of fewer than
`min_offloaded_tensor_size` elements excepted. Source: Megatron-Core `fine_grained_activation_offload`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import where

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.activations.tensors import Tensors
    from primus_lint.ledger.sizes import Sizes

# Module -> prefixes of the tensors that are saved inside it.
MODULES: dict[str, tuple[str, ...]] = {
    "attn_norm": ("attention.x",),
    "qkv_linear": ("attention.norm_out", "latent."),
    "core_attn": (
        "attention.q", "attention.k", "attention.v", "attention.lse", "attention.softmax", "attention.probs",
        "attention.causal_mask",
    ),
    "attn_proj": ("attention.out", "attention.proj_in"),
    "mlp_norm": ("mlp.x",),
    "expert_fc1": ("experts.fc1_in",),
    "moe_act": ("experts.fc1_out", "experts.probs", "experts.activated", "experts.linear", "experts.product"),
}  # fmt: skip


LEAST_ELEMENTS = 1024 * 1024


def offload(sizes: Sizes, tensors: Tensors) -> tuple[Tensors, Tensors]:
    """The tensors that stay on the device, and those that go to the host."""
    run = sizes.run
    prefixes = tuple(prefix for module in run.recompute.fine_grained_offload for prefix in MODULES.get(module, ()))
    if not prefixes:
        return tensors, {}
    least = least_bytes(sizes)
    stay: Tensors = {}
    leave: Tensors = {}
    for name, value in tensors.items():
        away = where(value >= least, value, 0) if name.startswith(prefixes) else 0
        leave[name], stay[name] = away, value - away
    return stay, leave


def emptied(sizes: Sizes, chunk: Chunk, received: Any) -> Any:
    """How much of a pipeline chunk's received input is freed once it is on the host: `attn_norm` of the first layer names
    the residual, which is that input, among `forced_released_tensors` (Megatron-Core `TransformerLayer`). The last layer
    of all is never sent (`should_bulk_offload`)."""
    run = sizes.run
    if "attn_norm" not in run.recompute.fine_grained_offload or not chunk.layers:
        return 0
    if chunk.loss and len(chunk.layers) + len(chunk.mtp) == 1:
        return 0
    return where(received >= least_bytes(sizes), received, 0)


def least_bytes(sizes: Sizes) -> Any:
    """Smaller tensors stay on the device."""
    return (sizes.run.args.get("min_offloaded_tensor_size") or LEAST_ELEMENTS) * sizes.act


def layers_on_device(sizes: Sizes) -> int:
    """Layers whose offloaded tensors are on the device at once: the one at hand and the next one, which is being fetched;
    under a pipeline also the last one of the next chunk to run backward, and one that is never sent."""
    return 2 if sizes.pp == 1 else 4
