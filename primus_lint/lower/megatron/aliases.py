"""Names of command-line flags where they differ from the argument that they set: `--norm-epsilon`, `layernorm_epsilon`."""

from __future__ import annotations

from functools import cache

from primus_lint.lower.megatron.tables import names_known
from primus_lint.lower.megatron.versions import key_table
from primus_lint.readers.tables import flags

# Arguments of the pinned version that d98e8a64 spells differently: accepted there under the old name as well.
_RENAMED = {"enable_gloo_process_groups": "use_gloo_process_groups"}


@cache
def aliases(version: str) -> dict[str, str]:
    """Flag name -> argument (dest) that it sets, where the two differ; flags that switch off are not names of it."""
    known = names_known(version)
    found = {old: new for old, new in _RENAMED.items() if old not in known and new in known}
    for text, flag in flags(key_table(version)).items():
        name = text.lstrip("-").replace("-", "_")
        if name not in known and not flag.off and flag.key in known:
            found[name] = flag.key
    return found
