"""Accelerators and node types as the rest of the program sees them. Units are in the names."""

from __future__ import annotations

from typing import Any


class Accelerator:
    """One kind of GPU.

    `visible_hbm_bytes` is what the driver shows to a program (the value to compare with), `visible_hbm_band_bytes` its
    (low, high) where it is derived. `peak_flops` and `achievable_flops` map a dtype to dense FLOP/s. Context and
    communicator bytes are (low, high) bands of what lies outside PyTorch's allocator; the latter per communicator.
    """

    __slots__ = (
        "achievable_flops", "arch", "communicator_band_bytes", "compute_units", "context_band_bytes", "label",
        "memory_bytes_per_s", "name", "node_types", "nominal_hbm_bytes", "peak_flops", "rates", "vendor",
        "visible_hbm_band_bytes", "visible_hbm_bytes",
    )  # fmt: skip

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name = name
        self.label: str = data["title"]
        self.vendor: str = data["vendor"]
        self.arch: str = data["arch"]
        self.node_types: list[str] = data["nodes"]
        self.nominal_hbm_bytes: int = data["nominal"]
        self.visible_hbm_bytes: int = data["visible"][0]
        self.visible_hbm_band_bytes: tuple[int, int] = (data["visible"][1], data["visible"][2])
        self.memory_bytes_per_s: float = data["bandwidth"]
        self.compute_units: int | None = data["units"]
        self.peak_flops: dict[str, float] = data["peak"]
        self.achievable_flops: dict[str, float] = data["achievable"]
        self.context_band_bytes: tuple[int, int] = (data["context"][0], data["context"][1])
        self.communicator_band_bytes: tuple[int, int] = (data["communicator"][0], data["communicator"][1])
        self.rates: dict[str, Any] = data["rates"]

    @property
    def node_type(self) -> str:
        """Name of the usual node type."""
        return self.node_types[0]

    def __repr__(self) -> str:
        return f"Accelerator({self.name!r})"


class NodeType:
    """One kind of node. Rates are bytes/s in one direction.

    `scale_up_gpus` is the number of GPUs that the scale-up fabric joins: `gpus_per_node`, or 72 in an NVL72 rack.
    `fabric_kind` is switch, mesh or pcie; `fabric_bytes_per_s` is per GPU (switch, pcie) or per pair of GPUs (mesh).
    """

    __slots__ = (
        "curves", "fabric", "fabric_bytes_per_s", "fabric_kind", "gpus_per_node", "host_memory_bytes", "host_operation_s",
        "inter", "name",
        "network", "nic_bytes_per_s", "nics", "note", "scale_up_gpus",
    )  # fmt: skip

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name = name
        self.gpus_per_node: int = data["gpus_per_node"]
        self.scale_up_gpus: int = data["scale_up_gpus"]
        self.fabric: str = data["fabric"]
        self.fabric_kind: str = data["fabric_kind"]
        self.fabric_bytes_per_s: float = data["fabric_rate"]
        self.network: str = data["network"]
        self.nics: int = data["nics"]
        self.nic_bytes_per_s: float = data["nic_rate"]
        self.host_memory_bytes: int | None = data["host_memory"]
        self.host_operation_s: tuple[float, float, float] = tuple(data["host_operation"])  # value, low, high
        self.note: str = data["note"]
        self.curves: dict[str, Any] = data["curves"]
        self.inter: dict[str, Any] = data["inter"]

    @property
    def network_bytes_per_s_per_gpu(self) -> float:
        """One GPU's share of the node's NICs when all its GPUs communicate."""
        return self.nics * self.nic_bytes_per_s / self.gpus_per_node

    def __repr__(self) -> str:
        return f"NodeType({self.name!r})"
