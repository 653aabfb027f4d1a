"""Which target a file is checked for: command line, settings, a comment in the file, its launch command, the path; in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ir.run import Target
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.readers.document import ResolvedDocument
    from primus_lint.settings import Settings
    from primus_lint.source.text import SourceText


class Assumed(NamedTuple):
    """One part of the target and where it came from, said once a run."""

    what: str
    value: str
    source: str


def resolve_target(
    path: str,
    source: SourceText | None,
    settings: Settings | None,
    *,
    gpu: str | None = None,
    nodes: int | None = None,
    world_size: int | None = None,
    gpus_per_node: int | None = None,
    document: ResolvedDocument | None = None,
) -> tuple[Target, list[Assumed]]:
    """The target of one file and what was taken from where; `document` is the file as it was read, where it was.

    A stronger source hides the weaker ones part by part: GPU kind, GPUs per node, and world size (which nodes x GPUs
    per node also gives).
    """
    layers: list[tuple[str, dict[str, object]]] = [
        ("the command line", {"gpu": gpu, "nodes": nodes, "world_size": world_size, "gpus_per_node": gpus_per_node})
    ]
    if settings is not None:
        found = settings.target_for(path)
        if found is not None:
            layers.append((f"settings ({settings.path})", found))
    if source is not None and "primus-lint:" in source.text:
        from primus_lint.settings import target_comment

        comment = target_comment(source.text)
        if comment:
            layers.append(("the target comment in the file", comment))
    launched = {} if document is None else _launched(document)
    if launched:
        layers.append(("the launch command in the file", launched))
    from primus_lint.hardware import guess_from_path

    guess = guess_from_path(path)
    if guess is not None:
        layers.append(("the path", {"gpu": guess}))

    assumed: list[Assumed] = []
    values: dict[str, object] = {}
    for name in ("gpu", "gpus_per_node"):
        for where, layer in layers:
            if layer.get(name) is not None:
                values[name] = layer[name]
                assumed.append(Assumed(name, str(layer[name]), where))
                break
    per_node = values.get("gpus_per_node")
    if not isinstance(per_node, int):
        per_node = node_size(str(values["gpu"])) if "gpu" in values else 8
        assumed.append(Assumed("gpus_per_node", str(per_node), "the node type" if "gpu" in values else "the default"))
    world: int | None = None
    for where, layer in layers:
        size, count = layer.get("world_size"), layer.get("nodes")
        if isinstance(size, int):
            world = size
        elif isinstance(count, int):
            world = count * per_node
        if world is not None:
            assumed.append(Assumed("world_size", str(world), where))
            break
    kind = values.get("gpu")
    return Target(None if kind is None else canonical_gpu(str(kind)), world, per_node), assumed


def canonical_gpu(name: str) -> str:
    """The name of hardware_db for an alias; an unknown name stays as it is (a finding says so)."""
    from primus_lint.hardware import accelerator

    found = accelerator(name)
    return name if found is None else found.name


def _launched(document: ResolvedDocument) -> dict[str, object]:
    """What the file's own launcher is told about nodes, GPUs per node and processes."""
    found = {name: document.top_level.get(f"launcher.{name}") for name in ("nodes", "gpus_per_node", "world_size")}
    return {name: value.value for name, value in found.items() if value is not None and value.value > 0}


def node_size(gpu: str) -> int:
    """GPUs of the usual node of a device; 8 when it is not known."""
    from primus_lint.hardware import accelerator, node_type

    if accelerator(gpu) is None:
        return 8
    node = node_type(gpu)
    return 8 if node is None else int(node.gpus_per_node)
