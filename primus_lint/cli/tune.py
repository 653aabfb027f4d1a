"""`primus-lint tune`: the fastest recipe that fits, why it is that, and the proof."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from primus_lint.cli import clicks, common, options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@click.command()
@click.argument("files", nargs=-1, required=True)
@clicks.options(options.TUNE)
def command(files: tuple[str, ...], **values: Any) -> None:
    """Search the best recipe for FILES (or the recipes below a folder) and explain it.

    The unified diff goes to standard output, the explanation to standard error; --write writes, --json prints
    everything as JSON instead. Exit status: 0, 1 when an error remains, 2 when a file could not be checked.
    """
    sys.exit(run(files, values))


def run(files: tuple[str, ...], values: dict[str, Any]) -> int:
    """Tune all files; the exit status."""
    from primus_lint.tune.job import rules_of, world_sizes

    world_sizes(values)
    rules_of(values)  # a wrong use is said before anything is searched
    common.make_options(values)
    if values.get("write"):
        common.refuse_what_if(values, "tune without --write")
    paths = list(common.find_files(files))
    alone = {path for path, named in paths if named}
    out = []
    status = 0
    for data in outcomes([path for path, _ in paths], values):
        if data.get("error") and data["path"] not in alone:
            continue  # YAML below a folder that is no recipe
        status = max(status, report(data, values))
        out.append(data)
    if values.get("json"):
        json.dump(out, sys.stdout, indent=1, default=str)
        sys.stdout.write("\n")
    return status


def outcomes(paths: list[str], values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The outcome of every file in order, several at a time with --jobs, on a cluster with --cluster."""
    from primus_lint.tune.job import tune_file

    if values.get("cluster"):
        from primus_lint.tune.fleet import on_cluster

        yield from on_cluster(paths, values, str(values["cluster"]))
        return
    jobs = int(values.get("jobs") or 1)
    if jobs == 1 or len(paths) < 2:
        yield from (tune_file(path, values) for path in paths)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(jobs, len(paths))) as pool:
        yield from ordered(pool.submit(tune_file, path, values) for path in paths)


def ordered(futures: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for future in list(futures):
        yield future.result()


def report(data: dict[str, Any], values: dict[str, Any]) -> int:
    """Show (and write) one outcome; the exit status that it asks for."""
    from primus_lint.tune.show import lines

    text, was, path = data.pop("text", None), data.pop("was", None), data["path"]
    if not values.get("json"):
        for line in lines(data):
            common.say(line)
    if data.get("error") or data.get("unreadable"):
        return 2
    if data["changed"]:
        if not values.get("json"):
            name = os.path.relpath(path).replace(os.sep, "/")
            sys.stdout.write(data["diff"].replace(f"a/{path}", f"a/{name}", 1).replace(f"b/{path}", f"b/{name}", 1))
        if values.get("write") and os.path.exists(path):
            from primus_lint.source.text import SourceText

            try:
                common.replace_file(path, SourceText.from_bytes(path, was).encode(text), was)
            except OSError as error:
                common.say(f"primus-lint: {path}: {error.strerror or error}")
                return 2
    return 1 if data["remaining_errors"] else 0
