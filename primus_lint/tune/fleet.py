"""Many files on an existing cluster: the task of `tune --jobs`, run by the workers of a Dask scheduler.

The workers read the files by their paths (a shared file system) and hold the same version of primus-lint. The task,
`job.tune_file`, takes and gives plain values, so that any other engine can run it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_S = 30


def on_cluster(paths: list[str], values: dict[str, Any], address: str) -> Iterator[dict[str, Any]]:
    """The outcomes of `job.tune_file` in the order of the paths, which become absolute; a file whose worker is lost has an
    error. Raises UsageError without the extra or a scheduler."""
    import os

    from primus_lint.cli.common import UsageError
    from primus_lint.tune.job import tune_file

    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--cluster needs the extra `fleet`: pip install 'primus-lint[fleet]'") from None
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler at {address}: {error}") from None
    with client:
        paths = [os.path.abspath(path) for path in paths]
        for path, future in zip(paths, client.map(tune_file, paths, values=values, pure=False), strict=True):
            lost = future.exception()
            yield {"path": path, "error": f"{type(lost).__name__}: {lost}"} if lost else future.result()
