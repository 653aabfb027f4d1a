"""What a hardware_db file may hold (pydantic), the published JSON Schema, and the checks across files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

Unit = Literal["B", "GB", "GiB", "GB/s", "TB/s", "TFLOP/s", "us", "W", "share", "count"]
Kind = Literal["spec", "measured", "derived"]
Dtype = Literal["bf16", "fp16", "tf32", "fp32", "fp8", "fp4"]
Vendor = Literal["amd", "nvidia"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fact(Strict):
    """A number: value, unit, origin. `low` and `high` bound it in the same unit; `date` defaults to the source's."""

    value: float = Field(gt=0)
    unit: Unit
    kind: Kind
    source: str
    date: str | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


class Accelerator(Strict):
    """hardware_db/accelerators/NAME.yaml. `visible_memory` is what the driver shows to a program; peaks are dense."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    title: str
    vendor: Vendor
    arch: str
    aliases: list[str]
    nodes: Annotated[list[str], Field(min_length=1)]
    nominal_memory: Fact
    visible_memory: Fact
    memory_bandwidth: Fact
    compute_units: Fact | None = None
    power: Fact | None = None  # of the whole module, at its limit
    peak: dict[Dtype, Fact]
    achievable: dict[Dtype, Fact]


class Fabric(Strict):
    """One entry of hardware_db/fabrics/*.yaml. Rate: one direction, per GPU (switch, pcie), pair (mesh) or NIC."""

    name: str
    kind: Literal["switch", "mesh", "pair", "pcie", "network"]
    in_switch_reduction: bool = False
    rate: Fact
    achievable: Fact | None = None


class Node(Strict):
    """One entry of hardware_db/nodes/*.yaml."""

    name: str
    gpus_per_node: int = Field(ge=1)
    scale_up_gpus: int = Field(ge=1)
    fabric: str
    network: str
    nics: int = Field(ge=1)
    host_memory: Fact | None = None
    note: str = ""


class Source(Strict):
    """One entry of hardware_db/sources.yaml."""

    title: str
    licence: str
    date: str
    collected: bool = False


class HardwareFile(Strict):
    """The four kinds of file that people edit by hand."""

    accelerator: Accelerator | None = None
    fabrics: list[Fabric] | None = None
    nodes: list[Node] | None = None
    sources: dict[str, Source] | None = None


FILES: dict[str, Any] = {
    "accelerator": TypeAdapter(Accelerator),
    "fabrics": TypeAdapter(list[Fabric]),
    "nodes": TypeAdapter(list[Node]),
    "sources": TypeAdapter(dict[str, Source]),
}


def json_schema() -> dict[str, Any]:
    """The published schema: `$defs` of every kind, the root being any hand-edited file of the database."""
    defs: dict[str, Any] = {}
    roots = []
    for adapter in FILES.values():
        schema = adapter.json_schema(ref_template="#/$defs/{model}")
        defs.update(schema.pop("$defs", {}))
        if "title" in schema and schema.get("type") == "object" and "properties" in schema:
            defs[schema["title"]] = schema
            roots.append({"$ref": f"#/$defs/{schema['title']}"})
        else:
            roots.append(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "primus-lint hardware database",
        "description": "A file of hardware_db/accelerators, fabrics or nodes, or hardware_db/sources.yaml.",
        "anyOf": roots,
        "$defs": defs,
    }


def problems(raw: dict[str, Any]) -> list[str]:
    """What is wrong with the parsed database: form, then references between files."""
    found: list[str] = []
    parts = [("accelerator", name, entry) for name, entry in raw["accelerators"].items()]
    parts += [(kind, kind, list(raw[kind].values())) for kind in ("fabrics", "nodes")]
    parts.append(("sources", "sources", raw["sources"]))
    for kind, name, data in parts:
        try:
            FILES[kind].validate_python(data)
        except ValidationError as error:
            found += [f"{name}: {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
    for name, entry in raw["accelerators"].items():
        found += [f"{name}: node type {node} is not known" for node in entry["nodes"] if node not in raw["nodes"]]
    for name, node in raw["nodes"].items():
        for key in ("fabric", "network"):
            if node[key] not in raw["fabrics"]:
                found.append(f"{name}: {key} {node[key]} is not known")
    for path, fact in facts(raw):
        if fact["source"] not in raw["sources"]:
            found.append(f"{path}: source {fact['source']} is not known")
        try:
            checked = Fact.model_validate(fact)
        except ValidationError as error:
            found += [f"{path}: {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
            continue
        low, high = checked.low, checked.high
        if not (low or checked.value) <= checked.value <= (high or checked.value):
            found.append(f"{path}: {checked.value} is not between low and high")
        if checked.unit == "share" and checked.value > 1 and "ratio" not in path and "kernels" not in path:
            found.append(f"{path}: a share above 1")
    return found


def facts(node: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every fact in the hand-written part of the database, with its path."""
    if isinstance(node, dict):
        if "value" in node and "unit" in node:
            return [(path, node)]
        return [
            pair
            for key, value in node.items()
            if key != "fits"
            for pair in facts(value, f"{path}/{key}" if path else key)
        ]
    if isinstance(node, list):
        return [pair for index, value in enumerate(node) for pair in facts(value, f"{path}/{index}")]
    return []
