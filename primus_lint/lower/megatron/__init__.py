"""ResolvedDocument section -> Lowered, for `framework: megatron` of Primus and for Megatron-LM itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

# All but the first register their symbols.
from primus_lint.lower.megatron import adjust, attention, batch, experts, features, stages, turbo
from primus_lint.lower.megatron.aliases import aliases
from primus_lint.lower.megatron.build import build_run, vendor_of
from primus_lint.lower.megatron.namespace import NO_NUMBER, WRONG_KIND, Namespace
from primus_lint.lower.megatron.tables import defaults, names_known, numbers

assert attention and batch and experts and features and stages and turbo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.ir.run import Run, Target
    from primus_lint.readers.document import Section


class Lowered:
    """A section as the program sees it: the namespace, what was changed on the way, and the typed recipe.

    `given` are the arguments before Megatron's own changes (after Primus's); `run` is None when a needed size is
    missing or has a wrong type; the rules that fire on the namespace say why.
    """

    __slots__ = ("adjustments", "framework", "namespace", "run", "section", "target", "version")

    def __init__(
        self,
        namespace: Namespace,
        adjustments: list[adjust.Adjustment],
        run: Run | None,
        section: Section,
        target: Target,
        version: str,
        framework: str,
    ) -> None:
        self.namespace = namespace
        self.adjustments = adjustments
        self.run = run
        self.section = section
        self.target = target
        self.version = version
        self.framework = framework


def launcher_env(framework: str, args: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a rank when the recipe does not say: what the launcher sets.

    Primus sets CUDA_DEVICE_MAX_CONNECTIONS to 1, or 8 under FSDP; for Megatron-LM the usual launch script exports 1.
    """
    fsdp = args.get("use_torch_fsdp2") or args.get("use_custom_fsdp") or args.get("use_megatron_fsdp")
    value = "8" if fsdp else "1"
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": value}
    if framework == "primus-megatron":
        env["NVTE_ROCM_ENABLE_MXFP8"] = "1"
    return env


def lower(
    section: Section,
    target: Target,
    version: str,
    framework: str,
    env: Mapping[str, str] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Lowered:
    """Apply the framework's defaults and changes to a section and build the typed recipe.

    `env` is the complete environment of a rank (None: what the launcher sets); `stack` may name `arch` (compute
    capability major), `te` and `torch` versions; unknown entries stay unknown.
    """
    args: dict[str, Any] = dict(defaults(version, framework))
    known = names_known(version)
    single = numbers(version)
    for key, value in section.values.items():
        args[key] = NO_NUMBER if isinstance(value.value, (list, tuple, dict)) and key in single else value.value
        if key not in known and framework == "megatron":  # Primus knows arguments by their own names only
            dest = aliases(version).get(key)
            if dest is not None and dest not in section.values:
                args[dest] = value.value
        elif "." in key and (root := key.partition(".")[0]) in single and root not in section.values:
            args[root] = NO_NUMBER  # a mapping: `{TP:8}` where `${TP:8}` was meant
    if "program" in section.meta and args.get("model_type") is None:
        args["model_type"] = section.meta["program"].value
    changes: list[adjust.Adjustment] = []
    if framework == "primus-megatron":
        changes += adjust.primus(args, set(section.values))
    given = dict(args)
    with suppress(*WRONG_KIND):  # a wrong type: the key rules report it, and no typed recipe is built
        changes += adjust.megatron(args, version)
    names = namespace(args, given, target, version, framework, env, stack)
    run = build_run(names, section, target, version, framework)
    return Lowered(names, changes, run, section, target, version, framework)


def namespace(
    args: dict[str, Any],
    given: dict[str, Any],
    target: Target,
    version: str,
    framework: str,
    env: Mapping[str, str] | None = None,
    stack: Mapping[str, Any] | None = None,
) -> Namespace:
    """The namespace of effective arguments with target, environment and software stack added."""
    names = Namespace(args, given)
    names["world_size"] = target.world_size
    names["gpus_per_node"] = target.gpus_per_node
    names["framework"] = framework
    names["version"] = version
    names["vendor"] = vendor_of(target.gpu, framework)
    for name, text in (launcher_env(framework, given) if env is None else env).items():
        names["env_" + name] = text
    stack = stack or {}
    names["arch"] = stack.get("arch", arch_of(target.gpu))
    names["te"] = version_number(stack.get("te"))
    names["torch"] = version_number(stack.get("torch"))
    names["flash_attn"] = version_number(stack.get("flash_attn"))
    names["resumed"] = bool(stack.get("resumed"))  # the run has loaded a checkpoint with its optimizer
    names["device"] = None if target.gpu is None else target.gpu.lower()
    return names


_ARCH = (("a100", 8), ("a800", 8), ("h", 9), ("mi", 9), ("gh", 9), ("b", 10), ("gb", 10))


def arch_of(gpu: str | None) -> int | None:
    """Compute capability (major) that PyTorch reports for a GPU by its name; None when it is not known.

    NVIDIA: A100 8, Hopper 9, Blackwell 10. AMD Instinct reports its GFX version: gfx90a, gfx942 and gfx950 are all 9.
    """
    name = (gpu or "").lower()
    return next((major for prefix, major in _ARCH if name.startswith(prefix)), None)


def version_number(text: Any) -> Any:
    """A library version as one comparable number, major*1000 + minor ("2.11.0" -> 2011); None when unknown."""
    if text is None:
        return None
    parts = str(text).split(".")
    try:
        major = int(parts[0])
        minor = int("".join(c for c in parts[1] if c.isdigit()) or 0) if len(parts) > 1 else 0
    except ValueError:
        return None
    return major * 1000 + minor
