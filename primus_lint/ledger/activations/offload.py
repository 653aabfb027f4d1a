"""Fine-grained activation offloading: kept tensors that move to host memory until backward.

Each name of `offload_modules` wraps one module; what autograd saves inside it goes to the host. On the device the
tensors of the layer at hand, and of the one being fetched, remain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.ledger.activations.tensors import Tensors

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


def offload(tensors: Tensors, modules: tuple[str, ...]) -> tuple[Tensors, Tensors]:
    """The tensors that stay on the device, and those that go to the host."""
    prefixes = tuple(prefix for module in modules for prefix in MODULES.get(module, ()))
    stay: Tensors = {}
    leave: Tensors = {}
    for name, value in tensors.items():
        if prefixes and name.startswith(prefixes) and name not in ("attention.qk_norm_statistics",):
            leave[name] = value
        else:
            stay[name] = value
    return stay, leave
