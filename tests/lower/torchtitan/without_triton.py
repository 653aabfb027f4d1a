"""Import torchtitan where Triton, which it needs for one kernel and does not require, is not installed.

`python without_triton.py SCRIPT ARGUMENTS...` does so and runs a script; others call `import_torchtitan`.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import types
import warnings
from pathlib import Path

KERNELS = "torchtitan.models.moe.kernels"


def import_torchtitan() -> None:
    """Import torchtitan for a CPU; without Triton its one module of kernels is loaded with nothing in Triton's place."""
    warnings.filterwarnings("ignore")
    import torch

    torch._utils._get_available_device_type = lambda: "cpu"  # type: ignore[attr-defined]
    if importlib.util.find_spec("triton") is None:
        package = importlib.util.find_spec("torchtitan")
        assert package is not None and package.origin is not None, "torchtitan is not installed"
        path = Path(package.origin).parent / "models" / "moe" / "kernels.py"
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("import triton")]
        module = types.ModuleType(KERNELS)
        module.triton = types.SimpleNamespace(jit=lambda function: function)  # type: ignore[attr-defined]
        module.tl = types.SimpleNamespace(constexpr=int)  # type: ignore[attr-defined]
        exec(compile("\n".join(lines), str(path), "exec"), module.__dict__)
        sys.modules[KERNELS] = module
    import torchtitan

    assert torchtitan


if __name__ == "__main__":
    del sys.argv[0]
    import_torchtitan()
    sys.path.insert(0, ".")
    runpy.run_path(sys.argv[0], run_name="__main__")
