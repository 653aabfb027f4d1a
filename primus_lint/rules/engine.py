"""Run the catalogue on one lowered section: conditions, then checks in code, with passes computed on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.lower.megatron.namespace import WRONG_KIND
from primus_lint.rules import catalogue
from primus_lint.rules.finding import Change, Finding, Fix
from primus_lint.rules.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from primus_lint.lower.megatron import Lowered
    from primus_lint.lower.megatron.namespace import Namespace

    Wanted = Callable[[catalogue.Entry], bool]

# Names of the namespace that no recipe sets (nor the environment's `env_NAME`).
NOT_KEYS = frozenset(("world_size", "gpus_per_node", "framework", "version", "vendor", "arch", "te", "torch", "device"))
# What "cannot be decided" looks like: an operand is None (unknown) or of a wrong type. The key rules report the latter.
UNDECIDED = WRONG_KIND


def violated(function: Callable[[Any], Any], names: Any) -> bool | None:
    """True when the condition is broken, False when it holds, None when it cannot be decided."""
    try:
        return bool(function(names))
    except UNDECIDED:
        return None


def check_conditions(lowered: Lowered, wanted: Wanted | None = None) -> list[Finding]:
    """Findings of all conditions; of the ones that are no errors, only of the wanted rules."""
    found = []
    names = lowered.namespace
    for entry in catalogue.applicable(lowered.framework, lowered.version):
        if entry.function is None or not (entry.severity == "error" or wanted is None or wanted(entry)):
            continue
        if violated(entry.function, names):
            found.append(word(entry.code, lowered))
    return found


def uses_world(names: Iterable[str], namespace: Namespace) -> bool:
    return any(namespace.depends_on_world(name) for name in names)


def word(code: str, lowered: Lowered) -> Finding:
    """Word the finding of a broken condition: message, labels and fixes with the recipe's own values."""
    rule = catalogue.facts()[code]
    names = lowered.namespace
    keys = rule_keys(rule, lowered)
    labels = tuple(
        (key, render(text, names, rule)) for key, text in (rule.get("labels") or {}).items()
    )  # fmt: skip
    return Finding(
        code,
        rule["name"],
        rule["severity"],
        render(rule["message"], names, rule),
        confidence=rule["confidence"],
        catalogue=tuple(rule["catalogue"]),
        stage=_stage(rule),
        order=rule["order"],
        keys=keys,
        labels=labels,
        fixes=tuple(fix for fix in (_fix(item, names) for item in rule["fix"]) if fix is not None),
        section=lowered.section,
        suppressible=rule.get("suppressible", True),
    )


def _stage(rule: dict[str, Any]) -> int:
    from primus_lint.rules.templates import STAGES

    return STAGES.index(rule["stage"])


def rule_keys(rule: dict[str, Any], lowered: Lowered) -> tuple[str, ...]:
    """Configuration keys that a rule is about; first the one to point at (the first that the file or a preset sets)."""
    keys: list[str] = list(rule.get("keys") or ())
    if not keys:
        for name in rule["names"]:
            base = name[6:] if name.startswith("given_") else name
            for key in lowered.namespace.keys_of.get(base, (base,)):
                if key not in keys and key not in NOT_KEYS and not key.startswith("env_"):
                    keys.append(key)
    at = rule.get("at")
    if at is not None:
        keys = [at] + [key for key in keys if key != at]
    elif not rule.get("keys"):
        keys.sort(key=lambda key: _strength(key, lowered))
    return tuple(keys)


def _strength(key: str, lowered: Lowered) -> int:
    from primus_lint.readers.document import LAYERS

    origin = lowered.section.origin(key)
    return len(LAYERS) if origin is None else LAYERS.index(origin.layer)


def evaluate(text: str, names: Any) -> Any:
    """The value of a catalogue expression. Raises one of UNDECIDED when it has none."""
    from primus_lint.rules import expr  # only a finding that is worded needs it

    space: dict[str, Any] = {"v": names, **FUNCTIONS}
    return eval(compile(expr.scalar_source(expr.parse(text)), "<rule>", "eval"), space)


def render(template: str, names: Any, rule: dict[str, Any]) -> str:
    """Fill a template: `{expression}`, `{expression!format}`, `{legal}` for the rule's legal values."""
    from primus_lint.rules.templates import template_parts

    out = []
    for part in template_parts(template):
        if isinstance(part, str):
            out.append(part)
            continue
        body, form = part
        try:
            value = (
                evaluate(str(rule["legal"]), names) if body == "legal" and rule.get("legal") else evaluate(body, names)
            )
        except UNDECIDED:
            out.append("?")
            continue
        out.append(format(value, form) if form else words(value))
    return "".join(out)


def words(value: Any) -> str:
    """A value as a reader would write it in YAML; a list as "1, 2 or 4"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        items = [words(item) for item in value]
        if len(items) > 12:
            items = [*items[:11], f"... {words(value[-1])}"]
        if not items:
            return "none"
        return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
    return str(value)


def _fix(item: dict[str, Any], names: Any) -> Fix | None:
    """A fix with its values computed; None when it has no legal value here."""
    changes = []
    try:
        if item.get("when") is not None and not evaluate(str(item["when"]), names):
            return None
        for key, text in (item.get("set") or {}).items():
            value = evaluate(str(text), names)
            if value is None and str(text).strip() != "None":
                return None
            changes.append(Change("set", key, value))
    except UNDECIDED:
        return None
    changes += [Change("drop", key) for key in item.get("drop") or ()]
    changes += [Change("rename", old, new) for old, new in (item.get("rename") or {}).items()]
    title = render(item["title"], names, {"legal": None})
    return Fix(title, item["safety"], tuple(changes))


def check(lowered: Lowered, wanted: Wanted | None = None) -> list[Finding]:
    """All findings of a lowered section that need nothing but its arguments, the earliest failing stage first."""
    found = check_conditions(lowered, wanted)
    for entry in catalogue.applicable(lowered.framework, lowered.version):
        if entry.check is not None and entry.check.startswith("args:"):
            found += run_check(entry, lowered)
    found.sort(key=lambda finding: (finding.stage, finding.order, finding.code))
    return found


def run_check(entry: catalogue.Entry, lowered: Lowered) -> list[Finding]:
    """Run a check in code: `module:function` names `primus_lint.rules.checks.module.function`.

    The function takes (lowered, rule) and yields Finding objects made with `make`.
    """
    import importlib

    assert entry.check is not None
    module_name, _, function_name = entry.check.partition(":")
    module = importlib.import_module(f"primus_lint.rules.checks.{module_name}")
    return list(getattr(module, function_name)(lowered, catalogue.Rule(entry.code)))


def make(rule: dict[str, Any], lowered: Lowered, message: str, keys: tuple[str, ...], **more: Any) -> Finding:
    """A finding of a check in code, with the rule's name, severity and ids."""
    catalogue_ids = more.pop("catalogue", tuple(rule["catalogue"]))
    return Finding(
        rule["code"], rule["name"], more.pop("severity", rule["severity"]), message,
        confidence=rule["confidence"], catalogue=catalogue_ids, stage=more.pop("stage", _stage(rule)),
        order=more.pop("order", rule["order"]), keys=keys, section=lowered.section, **more,
    )  # fmt: skip
