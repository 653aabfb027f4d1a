"""Values of a wrong type, and texts that do not mean what their author meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import WRITTEN, keys_of, listed, name_of, say, shown, written
from primus_lint.rules.checks.value_kinds import BOOLS, FLOATS, INTS, kind, outside
from primus_lint.rules.finding import Change, Finding, Fix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.readers.document import Value
    from primus_lint.subject import Subject

# Values that Primus takes beside Megatron's own choices.
EXTRA_CHOICES = {
    "fp4": ("mxfp4",),
    "fp4_recipe": ("mxfp4",),
    "moe_router_score_function": ("sqrtsoftplus",),
    "tokenizer_type": (
        "DeepSeekV2Tokenizer", "DeepSeekV3Tokenizer", "DeepSeekV4Tokenizer", "KimiK2Tokenizer", "Lfm2Tokenizer",
        "Llama3Tokenizer", "Llama4Tokenizer", "MixtralTokenizer",
    ),
}  # fmt: skip
PEFT = ("none", "lora", "dora")  # in any case
PLAIN = frozenset((*INTS, *FLOATS, *BOOLS))
TYPED = ("megatron", "torchtitan", "maxtext", "megatron_bridge")
# Megatron counts with these (`range`, shapes of tensors): 8.0 stops where 8 runs.
COUNTS = frozenset((
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels", "num_experts",
    "seq_length", "micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
    "context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
))  # fmt: skip
INFINITY = float("inf")
BOUNDS = ("clip", "max_norm", "limit", "threshold", "timeout", "truncation")  # in names of keys
CONVERTS = ("maxtext", "nemo_automodel")  # these turn a text that is a number into the number


def number_as_text(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Numbers that YAML 1.1 reads as text: `1e-5` has no point."""
    if subject.section.framework in CONVERTS:
        return
    tabled = bool(name_of(subject))
    for key, value in subject.section.values.items():
        text = value.value
        if type(text) is not str or (not text[:1].isdigit() and text[:1] not in "+-."):
            continue
        what = kind(subject, key)
        numeric = what in INTS or what in FLOATS
        if not numeric and (what not in ("", "?") or not _float_like(text)):
            continue
        if not _is_number(text):
            continue  # wrong_type says it
        right = _as_yaml(float(text), what)
        quoted = _quoted(value)
        how = "in quotes it is text" if quoted else "YAML 1.1 wants a point and a signed exponent"
        fix = Fix(
            f"write {right}", "safe", (Change("set", key, float(text) if what not in INTS else int(float(text))),)
        )
        sure = numeric and tabled
        yield say(
            rule, subject, f"{key} is the text {shown(text)}, not a number: {how}; write {right}", (key,),
            severity=rule["severity"] if sure else "warning", confidence="certain" if sure else "derived", fixes=(fix,),
        )  # fmt: skip


def wrong_type(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values that cannot be what their key wants."""
    framework = subject.section.framework
    if framework not in TYPED:
        return
    yield from _mappings(subject, rule)
    parsed = name_of(subject) == "megatron"  # its parser has a rule of its own, but takes nan and inf
    for key, value in subject.section.values.items():
        if parsed:
            problem = "" if key == "lr" else _not_finite(subject, key, value.value)  # learning-rate-finite says it
        else:
            problem = _problem(subject, key, value)
        if not problem and framework in CONVERTS:
            problem = outside(subject, key, value.value)
        if problem:
            fixes: tuple[Fix, ...] = ()
            meant = _bool_of(value.value) if kind(subject, key) in BOOLS else None
            if meant is not None:
                safety = "safe" if meant else "unsafe"  # the text counts as true
                fixes = (Fix(f"write {shown(meant)}", safety, (Change("set", key, meant),)),)
            elif isinstance(value.value, float) and value.value.is_integer() and key in COUNTS:
                fixes = (Fix(f"write {int(value.value)}", "safe", (Change("set", key, int(value.value)),)),)
            yield say(rule, subject, f"{key} {problem}", (key,), fixes=fixes)


def _mappings(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys of one value that hold a mapping; its leaves have dotted names, and an empty one is a value itself."""
    told: set[str] = set()
    for key, value in written(subject):
        parts = key.split(".")
        heads = [".".join(parts[:end]) for end in range(1, len(parts))] + ([key] if value.value == {} else [])
        root = next((head for head in heads if kind(subject, head) in (*PLAIN, "str")), "")
        if not root or root in told:
            continue
        dot, inner = root != key, key[len(root) + 1 :]
        told.add(root)
        message = f"{root} takes one value, not a mapping"
        if dot and value.value is None and ":" in inner:
            message += f"; a variable is written ${{{inner}}}"
        yield say(rule, subject, message, (key, root) if dot else (key,), at_key=bool(dot))


def unusable(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """What leaves neither memory nor time, where no error says why."""
    from primus_lint.lower.megatron.kinds import unusable as found

    if subject.run is None and not any(finding.severity == "error" for finding in subject.conditions):
        keys = tuple(found(subject.lowered.namespace))
        yield say(rule, subject, f"neither memory nor time can be computed: {subject.incomplete}", keys)


def int_for_bool(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """0 and 1 where true and false are meant: they work."""
    found = [
        key
        for key, value in written(subject)
        if type(value.value) is int and value.value in (0, 1) and kind(subject, key) in BOOLS
    ]
    if found:
        changes = tuple(Change("set", key, bool(subject.section.get(key))) for key in found)
        fix = Fix("write true and false", "safe", changes)
        yield say(rule, subject, f"{listed(found)}: write true or false instead of 1 or 0", tuple(found), fixes=(fix,))


def choices(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values outside the choices of the framework's parser, which Primus does not run them through."""
    if subject.section.framework == "torchtitan":
        yield from _titan_choices(subject, rule)
    if subject.section.framework == "megatron_bridge":
        yield from _bridge_choices(subject, rule)
    if name_of(subject) != "primus-megatron":
        return
    from primus_lint.lower.megatron.tables import keys
    from primus_lint.rules.checks.choice_effects import effect, meant
    from primus_lint.rules.functions import as_list
    from primus_lint.rules.templates import STAGES

    table, names = keys(subject.version), subject.lowered.namespace
    errors = [finding for finding in subject.conditions if finding.severity == "error"]
    told = {key for finding in errors if not speaks_for(rule, finding) for key in finding.keys[:1]}
    for key, value in written(subject):
        if key in told:
            continue
        legal = table.get(key, {}).get("choices")
        if not legal or value.value is None:
            continue
        allowed = [*legal, *EXTRA_CHOICES.get(key, ())]
        bad = [item for item in as_list(value.value) if item not in allowed]
        if not bad or names[key] in allowed:  # Primus may have put another value in its place
            continue
        stage, does = effect(key, names)
        check = next((finding for finding in errors if key in finding.keys and speaks_for(rule, finding)), None)
        if stage is None and check is not None:
            stage, does = STAGES[check.stage], f"another check stops the run ({check.name})"
        near = meant(bad[0], legal) if len(bad) == 1 else None
        text = ", ".join(map(str, sorted(legal, key=str)))
        message = f"{key} cannot be {listed([shown(item) for item in bad])}; Megatron knows {text}"
        if near is not None:
            message += f" (near: {near})"
        fixes: tuple[Fix, ...] = ()
        if near is not None and bad == [value.value]:  # what stops the run trains nothing that could change
            safety = "safe" if stage is not None else "unsafe"
            fixes = (Fix(f"write {near}", safety, (Change("set", key, near),)),)
        yield _unchecked(rule, subject, key, stage, f"{message}; Primus does not check it: {does}", fixes)


def _unchecked(
    rule: dict[str, Any], subject: Subject, key: str, stage: str | None, message: str, fixes: tuple[Fix, ...] = ()
) -> Finding:
    """A value that nothing checks: an error of the stage that it stops, else of the rule's severity."""
    from primus_lint.rules.templates import STAGES

    severity = rule["severity"] if stage is None else "error"
    finding = say(rule, subject, message, (key,), severity=severity, fixes=fixes)
    if stage is not None:
        finding.stage = STAGES.index(stage)
    return finding


def nulls(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Keys set to null that Megatron counts on: Primus puts the None on the arguments."""
    from primus_lint.rules.checks.choice_effects import null_effect

    names = subject.lowered.namespace
    told = {key for finding in subject.conditions if finding.severity == "error" for key in finding.keys[:1]}
    for key, value in written(subject):
        found = null_effect(key, names) if value.value is None and key not in told else None
        if found is not None:
            stage, does = found
            yield _unchecked(rule, subject, key, stage, f"{key} needs a value, null is none: {does}")


def _titan_choices(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """As `choices`, in a Primus file with a TorchTitan section."""
    if not subject.section.meta:  # TorchTitan's own command line refuses them
        return
    from primus_lint.rules.checks.choice_effects import meant, titan_effect
    from primus_lint.rules.checks.titan_fields import fields

    known, names = fields(subject.version), subject.lowered.namespace
    told = {key for finding in subject.conditions if finding.severity == "error" for key in finding.keys[:1]}
    for key, value in written(subject):
        legal = list((known.get(key) or {}).get("choices") or ())
        if not legal or value.value is None or isinstance(value.value, list) or value.value in legal or key in told:
            continue
        stage, does = titan_effect(key, value.value, names)
        near = meant(value.value, legal)
        message = f"{key} cannot be {shown(value.value)}; TorchTitan knows {', '.join(map(str, legal))}"
        fixes: tuple[Fix, ...] = ()
        if near is not None:
            message += f" (near: {near})"
            fixes = (Fix(f"write {near}", "unsafe" if stage is None else "safe", (Change("set", key, near),)),)
        yield _unchecked(rule, subject, key, stage, f"{message}; Primus does not check it: {does}", fixes)


def _bridge_choices(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """As `choices`, of the kinds of PEFT that recipes take and of configuration fields with listed values."""
    from ast import literal_eval

    from primus_lint.readers.tables import table
    from primus_lint.rules.checks.choice_effects import UNKNOWN, meant

    config = table("megatron_bridge")["config"]
    for key, value in written(subject):
        _, literal, listing = str(config.get(key, {}).get("type", "")).partition("Literal[")
        legal = list(PEFT) if key == "peft" else literal_eval(f"[{listing.partition(']')[0]}]") if literal else []
        item = value.value.lower() if key == "peft" and isinstance(value.value, str) else value.value
        if not legal or item is None or isinstance(item, (list, dict)) or item in legal:
            continue
        near = meant(item, legal)
        message = f"{key} cannot be {shown(value.value)}; Megatron-Bridge knows {', '.join(map(str, legal))}"
        fixes: tuple[Fix, ...] = ()
        if near is not None:
            message += f" (near: {near})"
            fixes = (Fix(f"write {near}", "unsafe", (Change("set", key, near),)),)
        yield say(rule, subject, f"{message}; nothing checks it: {UNKNOWN}", (key,), fixes=fixes)


def speaks_for(rule: dict[str, Any], finding: Finding) -> bool:
    """Whether a finding is withheld where this rule says the same of its key."""
    from primus_lint.rules import catalogue

    return rule["code"] in ((catalogue.facts().get(finding.code) or {}).get("told_by") or ())


def other_base(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """`010` and `1:30`: YAML 1.1 reads the first in base 8, the second in base 60."""
    import re

    pattern = re.compile(r"[+-]?0_*[0-7][0-7_]*|[+-]?[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
    for key, value in written(subject):
        raw = value.origin.raw
        if type(value.value) in (int, float) and raw is not None and pattern.fullmatch(raw):
            base = 60 if ":" in raw else 8
            if base == 8 and int(raw.replace("_", "")) == value.value:
                continue  # the same in base 10, or read by a program that knows no base 8 (argparse)
            message = (
                f"{key} {raw} is {shown(value.value)}: YAML 1.1 reads it in base {base}; write {shown(value.value)}"
            )
            if base == 8:
                message += f", or {raw.lstrip('+-0_') or 0} if that is meant"
            yield say(rule, subject, message, (key,))


def literal_quotes(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    r"""`${NAME:""}`: the quotes become part of the value."""
    yield from _by_raw(
        subject, rule, lambda inner: len(inner) > 1 and inner[0] in "\"'" and inner[-1] == inner[0],
        lambda key, name, inner: f"{key} becomes {inner} with its quotes where {name} is not set: write ${{{name}:{inner[1:-1]}}}",
    )  # fmt: skip


def bash_default(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """`${NAME:-8}`: a default of minus eight."""
    yield from _by_raw(
        subject, rule, lambda inner: inner[:1] in ("-", "=", "?", "+") and not (inner[:1] == "-" and _meant(inner)),
        lambda key, name, inner: f"the default of {name} is {inner!r} here, sign included: write ${{{name}:{inner[1:]}}}",
    )  # fmt: skip


def _meant(inner: str) -> bool:
    """Whether a default with a minus may be meant: minus one says "off" or "all" in many keys."""
    return inner == "-1"


def nested_variable(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Text with a `${` left in it: defaults do not nest, and a list cannot be one."""
    if not _primus_variables(subject):
        return
    for key, value in subject.section.values.items():
        text = value.value
        if isinstance(text, str) and "${" in text and value.origin.variable is not None:
            message = f"{key} keeps the text {shown(text)}: variables in defaults are not replaced"
            yield say(rule, subject, message, (key,))


def _primus_variables(subject: Subject) -> bool:
    """Whether `${NAME:default}` is replaced by Primus; in MODEL_ARGS and scripts a shell replaces `${NAME:-default}`."""
    return subject.document.format.startswith("primus")


def _by_raw(subject: Subject, rule: dict[str, Any], wanted: Any, message: Any) -> Iterator[Finding]:
    import re

    if not _primus_variables(subject):
        return
    pattern = re.compile(r"\$\{([^:{}]+):([^}]*)\}")
    for key, value in subject.section.values.items():
        raw = value.origin.raw
        if raw is None or "${" not in raw:
            continue
        for name, inner in pattern.findall(raw):
            if wanted(inner) and subject.document.env_used.get(name) is None:
                yield say(rule, subject, message(key, name, inner), (key,))
                break


def _problem(subject: Subject, key: str, value: Value) -> str:
    item = value.value
    if item is None:  # pydantic takes a null where the annotation names None, and there alone
        strict = subject.section.framework == "maxtext" and value.origins[0].layer in WRITTEN
        plain = strict and keys_of(subject).get(key, {}).get("type") in (*PLAIN, "str")
        return "is null, which MaxText refuses for it" if plain else ""
    wanted = kind(subject, key)
    if wanted not in PLAIN:
        return ""
    converts = subject.section.framework in CONVERTS  # "2", "yes" and true for 1 become what the key wants
    if isinstance(item, list):
        return f"takes one value, not the list {shown(item)}" if item and not _takes_list(subject, key) else ""
    if isinstance(item, dict):
        return ""
    if not isinstance(item, (int, float, str)):
        return f"is {shown(item)}, which is no number: YAML reads a date there"
    if wanted in BOOLS:
        return _no_bool(item, converts)
    if wanted in INTS:
        if isinstance(item, bool) and not converts:
            return f"is {shown(item)}, not a whole number"
        if isinstance(item, float) and not item.is_integer():
            return f"is {item}, no whole number"
        if isinstance(item, float) and key in COUNTS and not converts:
            return f"is {item}, a floating-point number: write {int(item)}"
        if isinstance(item, str) and not _is_number(item) and not _takes_list(subject, key):
            return f"is {shown(item)!r}, no whole number{_variable(subject, item)}{_octal(subject, key, item)}"
    elif isinstance(item, str) and not _is_number(item):
        return f"is {shown(item)!r}, no number{_variable(subject, item)}"
    return _not_finite(subject, key, item)


def _octal(subject: Subject, key: str, text: str) -> str:
    """The number that `0o17` is in YAML 1.2; to PyYAML it is a text."""
    from re import fullmatch

    quoted = subject.section.values[key].origin.raw != text
    return "" if quoted or not fullmatch("0o[0-7]+", text) else f": only YAML 1.2 knows 0o; write {int(text, 8)}"


def _variable(subject: Subject, text: str) -> str:
    """How a variable is written, where `$TP` or `${TP:8` shows that one was meant."""
    meant = text[:1] == "$" and text[-1:] != "}" and _primus_variables(subject)
    return "; a variable is written ${NAME} or ${NAME:default}" if meant else ""


def _not_finite(subject: Subject, key: str, item: Any) -> str:
    """Why nan (YAML's .nan) or infinity is no value of a key. A bound may be infinite: nothing is cut off."""
    if not isinstance(item, float) or kind(subject, key) not in FLOATS:
        return ""
    if item != item:
        return "is nan, which is no number"
    if abs(item) < INFINITY or key == "lr":  # the learning rate has a rule of its own
        return ""
    bound = item > 0 and any(word in key for word in BOUNDS)
    return "" if bound else f"is {shown(item)}, which is no finite number"


def _no_bool(item: float | str, converts: bool) -> str:
    """Why a value is neither true nor false."""
    if isinstance(item, str):
        if _bool_of(item) is None:
            return f"is {shown(item)!r}, neither true nor false"
        return (
            "" if converts else f"is the text {item!r}, which counts as true whatever it says: write it without quotes"
        )
    return "" if item in (0, 1) else f"is {shown(item)}, neither true nor false"


def _bool_of(text: Any) -> bool | None:
    """The switch that a text spells; None when it spells none."""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words.get(text.lower()) if isinstance(text, str) else None


def _takes_list(subject: Subject, key: str) -> bool:
    from primus_lint.lower.megatron.tables import keys

    if subject.section.framework != "megatron":
        return False
    return keys(subject.version).get(key, {}).get("nargs") is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _float_like(text: str) -> bool:
    from primus_lint.source.scalars import looks_like_float

    return looks_like_float(text)


def _quoted(value: Value) -> bool:
    raw = value.origin.raw
    return raw is not None and raw[:1] in "\"'"


def _as_yaml(number: float, what: str) -> str:
    """A number as YAML 1.1 reads it back."""
    if what in INTS and number.is_integer():
        return str(int(number))
    text = repr(number)
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        sign = exponent[0] if exponent[0] in "+-" else "+"
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.lstrip('+-').lstrip('0')}"
    return text
