"""ResolvedDocument section -> Lowered, for `framework: torchtitan`."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron import Lowered, arch_of, version_number
from primus_lint.lower.megatron.build import vendor_of
from primus_lint.lower.torchtitan.keys import defaults
from primus_lint.lower.torchtitan.models import arguments
from primus_lint.lower.torchtitan.namespace import TitanNamespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.ir.run import Target
    from primus_lint.lower.megatron.namespace import Namespace
    from primus_lint.readers.document import Section


def lower(
    section: Section,
    target: Target,
    version: str,
    framework: str,
    env: Mapping[str, str] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Lowered:
    """The namespace of a TorchTitan section: defaults of the version, the flavor's model arguments, the section's keys.

    `env` is the complete environment of a rank, None when it is not known; `stack` as for Megatron. There is no typed
    recipe (`run` is None): the ledger of TorchTitan reads the namespace.
    """
    given = {key: value.value for key, value in section.values.items()}
    names = TitanNamespace({**defaults(version), **given})
    for key, value in arguments(names["model.name"], names["model.flavor"]).items():
        names.setdefault(key, value)
    names["world_size"] = target.world_size
    names["gpus_per_node"] = target.gpus_per_node
    names["framework"], names["version"] = framework, version
    names["vendor"] = None if target.gpu is None else vendor_of(target.gpu, framework)
    names["env_known"] = env is not None
    for name, text in (env or {}).items():
        names["env_" + name] = text
    stack = stack or {}
    names["arch"] = stack.get("arch", arch_of(target.gpu))
    names["torch"] = version_number(stack.get("torch"))
    names["device"] = None if target.gpu is None else target.gpu.lower()
    return Lowered(names, [], None, section, target, version, framework)


def candidates(names: Namespace, limit: int) -> list[int]:
    """World sizes that satisfy the grid and batch arithmetic.

    A given sharding degree leaves one size. Else the ranks that are left must divide the global batch, counted in
    local batches a replica, where one is given.
    """
    rest, shard = names["rest"], names["parallelism.data_parallel_shard_degree"]
    if rest < 1:
        return []
    if shard >= 1:
        return [rest * shard] if rest * shard <= limit else []
    ranks = names["ep"] * names["etp"]  # that the experts need among shard * cp * tp
    step = rest * (ranks // gcd(ranks, names["cp"] * names["tp"]))
    batch, local = names["training.global_batch_size"], names["training.local_batch_size"]
    if batch is None or batch < 0:
        sizes = list(range(step, limit + 1, step))
        return [1, *sizes] if rest == 1 < step and names["ep"] == 1 else sizes  # one rank asks nothing of experts
    each = local * names["dp_replicate"]
    if batch == 0 or batch % each:
        return []
    from primus_lint.rules.functions import divisors

    sizes = [rest * degree for degree in divisors(batch // each)]
    return [size for size in sizes if size <= limit and size % step == 0]
