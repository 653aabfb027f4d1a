"""How many nodes and GPUs a script asks for: torchrun's and other launchers' options, and the `#SBATCH` header."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from primus_lint.readers.document import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from primus_lint.readers.document import Origin
    from primus_lint.readers.shell_text import Field
    from primus_lint.source.text import SourceText

_OPTIONS = {
    "--nnodes": "nodes", "--nproc_per_node": "gpus_per_node", "--nproc-per-node": "gpus_per_node",
    "--nproc": "gpus_per_node", "--num_nodes": "nodes", "--num_gpus": "gpus_per_node",
}  # fmt: skip
_TORCH = ("torchrun", "torch.distributed.run", "torch.distributed.launch")  # one process a GPU, on one node unless told
_MPI = ("mpirun", "mpiexec", "orterun", "mpiexec.hydra")
STARTERS = frozenset((*_MPI, "srun"))  # start a command several times
# Of launchers that start every process themselves; with torchrun behind them they start one a node.
_MPI_OPTIONS = {
    "-np": "world_size", "--np": "world_size", "-n": "world_size", "--n": "world_size", "-npernode": "gpus_per_node",
    "--npernode": "gpus_per_node", "-N": "gpus_per_node", "-ppn": "gpus_per_node", "--ppn": "gpus_per_node",
}  # fmt: skip
_SRUN_OPTIONS = {
    "-n": "world_size", "--ntasks": "world_size", "--ntasks-per-node": "gpus_per_node", "-N": "nodes", "--nodes": "nodes",
    "--gpus-per-node": "gpus_per_node",
}  # fmt: skip
_GLUED = re.compile(r"^(-[nN])(\d+)$")
_SBATCH = re.compile(r"^#SBATCH[ \t]+(--?[A-Za-z-]+)(?:[ \t]*=[ \t]*|[ \t]+)?([^\s#]*)", re.MULTILINE)


class Header(NamedTuple):
    """`nodes` and `gpus_per_node` of the header, and the variables that Slurm sets from it."""

    nodes: int | None
    gpus_per_node: int | None
    variables: dict[str, str]


def batch_header(text: str) -> Header:
    options: dict[str, str] = {}
    for match in _SBATCH.finditer(text):
        options[match.group(1)] = match.group(2)
    nodes = _number(options.get("--nodes", options.get("-N", "")))
    tasks = _number(options.get("--ntasks-per-node", ""))
    gpus = _number(options.get("--gpus-per-node", options.get("--gres", "")).rpartition(":")[2])
    variables: dict[str, str] = {}
    if nodes is not None:
        variables |= {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    if tasks is not None:
        variables["SLURM_NTASKS_PER_NODE"] = str(tasks)
        if nodes is not None:
            variables |= {"SLURM_NTASKS": str(nodes * tasks), "SLURM_NPROCS": str(nodes * tasks)}
    if gpus is not None:
        variables["SLURM_GPUS_ON_NODE"] = str(gpus)
    if options.get("--gpus-per-node"):
        variables["SLURM_GPUS_PER_NODE"] = options["--gpus-per-node"]
    if options.get("--cpus-per-task"):
        variables["SLURM_CPUS_PER_TASK"] = options["--cpus-per-task"]
    return Header(nodes, gpus if gpus is not None else tasks if tasks != 1 else None, variables)


def _single(around: Sequence[Field]) -> bool:
    """Whether one shell a node is started: what runs in it starts the processes."""
    text = " ".join(field.text.replace("=", " ") for field in around) + " "
    tasks, nodes = (re.search(rf" (?:{names}) ?(\d+) ", text) for names in ("-n|--ntasks", "-N|--nodes"))
    alike = tasks is not None and nodes is not None and tasks.group(1) == nodes.group(1)
    return alike or " --ntasks-per-node 1 " in text


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 7 and int(text) > 0 else None


def launcher(
    source: SourceText, command: list[Field], behind: int, header: Header, origin_of: Callable[..., Origin],
    around: Sequence[Field] = (),
) -> dict[str, Value]:  # fmt: skip
    """`launcher.nodes`, `launcher.gpus_per_node` and `launcher.world_size`: what the command says before the training
    script (whose words begin at `behind`), and what starts the shell `around` it, else the header of the batch script."""
    command, behind = [*around, *command], len(around) + behind
    words = command[:behind]
    names = [os.path.basename(field.text) for field in words]
    torch = next((field for field in words if os.path.basename(field.text) in _TORCH), None)
    tables = [_OPTIONS]
    if any(name in _MPI for name in names) and torch is None:
        tables.append(_MPI_OPTIONS)
    elif "srun" in names:
        one_a_node = {name: what for name, what in _SRUN_OPTIONS.items() if what == "nodes"}
        tables.append(_SRUN_OPTIONS if torch is None and not _single(around) else one_a_node)
    found: dict[str, Value] = {}
    told = set()
    for table in tables:
        for index, field in enumerate(words):
            name, equals, text = _GLUED.sub(r"\1=\2", field.text).partition("=")
            if name not in table or not (equals or index + 1 < len(command)):
                continue
            what = table[name]
            told.add(what)
            value = field if equals else command[index + 1]
            number = _number(text if equals else value.text)
            if number is not None and (table is _OPTIONS or f"launcher.{what}" not in found):
                path = ("launcher", what)
                origin = origin_of(source, field, value, "experiment", path)._replace(value=number)
                found[".".join(path)] = Value(number, (origin,))
    alone = 1 if torch is not None and "nodes" not in told else None  # torchrun's default
    for name, count, at in (
        ("nodes", alone, torch or command[0]),  # whatever the batch job holds
        ("nodes", header.nodes, command[0]),
        ("gpus_per_node", header.gpus_per_node, command[0]),
    ):
        path = ("launcher", name)
        if count is not None and ".".join(path) not in found:
            origin = origin_of(source, at, None, "experiment", path)._replace(value=count)
            found[".".join(path)] = Value(count, (origin,))
    return found
