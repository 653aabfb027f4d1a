"""Names of command-line flags where they differ from the argument that they set: `--norm-epsilon`, `layernorm_epsilon`."""

from __future__ import annotations

from functools import cache

from primus_lint.lower.megatron.tables import keys

# Arguments of the pinned version that d98e8a64 spells differently: accepted there under the old name as well.
_RENAMED = {"enable_gloo_process_groups": "use_gloo_process_groups"}


@cache
def aliases(version: str) -> dict[str, str]:
    """Flag name -> argument (dest) that it sets, where the two differ; flags that switch off are not names of it."""
    table = keys(version)
    found = {old: new for old, new in _RENAMED.items() if old not in table and new in table}
    for key, entry in table.items():
        for flag in entry.get("flags") or ():
            name = flag.lstrip("-").replace("-", "_")
            if name not in table:
                found[name] = key
    return found
