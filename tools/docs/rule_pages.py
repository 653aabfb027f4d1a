"""One page a rule, from its file in `rules/`: what, why, condition, fixes, and every example run for its real output."""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from primus_lint import resources
from primus_lint.evaluate import subject_of
from primus_lint.report.text import Style, write_finding
from primus_lint.rules.compile import load_rule, rule_files
from primus_lint.rules.examples import bases, request, runnable
from primus_lint.rules.finding import Finding, Fix
from primus_lint.rules.judge import findings_of
from primus_lint.rules.verify import keep_working_fixes
from tools.docs.markdown import code, fence, paragraph, table

FAMILIES = {
    "S": "Source and YAML", "K": "Keys", "P": "Parallelism and topology", "B": "Batch and training length",
    "L": "Layout and schedule", "E": "Experts", "C": "Context and sequence", "R": "Recomputation", "N": "Numerics",
    "O": "Optimizer and sharding", "X": "Overlap and communication", "M": "Memory", "T": "Throughput",
    "D": "Sense and drift", "U": "Suppressions and settings",
}  # fmt: skip
FOLDER = resources.data_root("rules")
SAFETY = {
    "safe": "written by `--fix`",
    "unsafe": "written with `--unsafe-fixes`",
    "display-only": "shown, never written",
}


def rules() -> list[dict[str, Any]]:
    """Every rule file, by code."""
    return sorted((load_rule(path) for path in rule_files(FOLDER)), key=lambda rule: str(rule["code"]))


def pages(site_pages: frozenset[str] = frozenset()) -> dict[str, str]:
    """Path below docs/ -> text, for the index and every rule. `site_pages` are the pages that may be linked."""
    every = rules()
    names = {rule["code"]: rule["name"] for rule in every}
    found = {"rules/index.md": index(every)}
    for rule in every:
        found[f"rules/{rule['name']}.md"] = page(rule, site_pages, names)
    return found


def index(every: list[dict[str, Any]]) -> str:
    """All rules by family."""
    count = sum(len(rule.get("examples") or []) for rule in every)
    parts = [
        "# Rules",
        f"{len(every)} rules with {count} examples, which are their tests; every page shows what the tool prints for "
        "them. A rule has a code and a name; both work in settings, suppressions and `primus-lint explain`.",
    ]
    for family, title in FAMILIES.items():
        own = [rule for rule in every if rule["code"][0] == family]
        if not own:
            continue
        rows = [
            (rule["code"], f"[{rule['name']}]({rule['name']}.md)", rule["severity"], paragraph(rule["what"]))
            for rule in own
        ]
        parts += [f"## {title} ({family})", table(["code", "name", "severity", "what"], rows)]
    return "\n\n".join(parts) + "\n"


def page(rule: dict[str, Any], site_pages: frozenset[str], names: dict[str, str]) -> str:
    """The page of one rule."""
    parts = [f"# {rule['name']}", _facts(rule), paragraph(rule["what"]), "## Why", paragraph(rule["why"])]
    parts += _condition(rule)
    if rule["fix"]:
        rows = [(code(str(fix["title"])), fix["safety"], SAFETY[fix["safety"]], _when(fix)) for fix in rule["fix"]]
        parts += ["## Fixes", table(["fix", "class", "", "offered when"], rows)]
        parts.append("A fix is offered only on a recipe on which it works: the finding goes and no new error comes.")
    examples = rule.get("examples") or []
    if examples:
        parts.append("## Examples")
        for number, example in enumerate(examples, 1):
            parts += _example(rule, example, number, len(examples))
    if rule.get("see"):
        parts += ["## See", "\n".join(f"- {_reference(text, site_pages)}" for text in rule["see"])]
    name = rule["name"]
    parts += ["## Switch it off", f"In one place: `# primus-lint: ignore[{name}] reason`, on the line or above it."]
    parts.append(f'Everywhere: `ignore = ["{name}"]` in the [settings](../settings.md).')
    return "\n\n".join(parts) + "\n"


def _facts(rule: dict[str, Any]) -> str:
    words = [f"`{rule['code']}`", f"**{rule['severity']}**", f"confidence {rule['confidence']}"]
    words.append(f"profile {rule['profile']}")
    words.append("for " + ", ".join(rule["frameworks"]))
    versions = rule.get("versions")
    if versions:
        words.append(" ".join(f"{side} `{version}`" for side, version in versions.items()))
    if rule["stage"] != "none":
        words.append(f"stage {rule['stage']}")
    return " · ".join(words)


def _condition(rule: dict[str, Any]) -> list[str]:
    conditions = rule["catalogue"]
    noun = "condition" if len(conditions) == 1 else "conditions"
    covers = [f"Covers the framework's {noun} {', '.join(conditions)}."] if conditions else []
    if rule.get("check") is not None:
        module, _, function = rule["check"].partition(":")
        if module == "document":
            return ["## Condition", "Found while the file is read."]
        return [
            "## Condition",
            f"Decided in code: `primus_lint/rules/checks/{module}.py`, function `{function}`.",
            *covers,
        ]
    lines = [f"{field}: {' '.join(rule[field].split())}" for field in ("when", "require", "forbid") if rule.get(field)]
    return ["## Condition", fence("\n".join(lines), "yaml"), *covers]


def _when(fix: dict[str, Any]) -> str:
    return code(" ".join(str(fix["when"]).split())) if fix.get("when") is not None else "always"


def _reference(text: str, site_pages: frozenset[str]) -> str:
    """A link to a page of this site; anything else (a file of the framework) as it stands."""
    page = text.removeprefix("docs/")
    return f"[{page}](../{page})" if text.startswith("docs/") and page in site_pages else code(text)


# -- examples ------------------------------------------------------------------------------------------------------
def _example(rule: dict[str, Any], example: dict[str, Any], number: int, count: int) -> list[str]:
    kind = "bad" if "bad" in example else "good"
    title = {"bad": "Reported", "good": "Not reported"}[kind] + (f" ({number} of {count})" if count > 1 else "")
    run = _of_recipe if runnable(rule) else _of_file
    parts = [f"### {title}", *run(rule, example, example[kind])]
    if "fixed" in example:
        content = {**example["bad"], **example["fixed"]} if isinstance(example["bad"], dict) else example["fixed"]
        parts += ["Repaired:", *run(rule, example, content)]
    return parts


def _of_recipe(rule: dict[str, Any], example: dict[str, Any], content: Any) -> list[str]:
    """An example that is data: the arguments on top of a shared legal recipe, as `primus-lint batch` takes them."""
    asked = request(example, content or {}, FOLDER)
    base = bases(FOLDER)[example.get("base", "dense")]["args"]
    own = {key: value for key, value in asked["args"].items() if key not in base or base[key] != value}
    text = _yaml(own) if own else "# nothing"
    text += "".join(f"# without {key}\n" for key in example.get("drop") or () if key in base)
    target = asked["target"]
    where = f"{target['world_size'] or 'an unknown number of'} GPUs" + (f" ({target['gpu']})" if target["gpu"] else "")
    about = f"On top of the legal recipe `{example.get('base', 'dense')}` of `rules/bases.yaml`, on {where}"
    for field in ("version", "framework"):
        if example.get(field):
            about += f", {field} `{example[field]}`"
    if example.get("env"):
        about += ", with " + ", ".join(f"`{name}={value}`" for name, value in example["env"].items())
    if example.get("stack"):
        about += ", with " + ", ".join(f"{name} {value}" for name, value in example["stack"].items())
    subject = subject_of(asked)
    if rule.get("check") is None or rule["check"].startswith("args:"):
        found = list(subject.conditions)
        keep_working_fixes(found, subject)
    else:
        found = findings_of(subject)
    found = [finding for finding in found if finding.severity != "info" or finding.code == rule["code"]]
    found.sort(key=lambda finding: (finding.code != rule["code"], finding.stage, finding.order))
    return [about + ":", fence(text, "yaml"), fence(_lines(found, rule["code"]))]


def _lines(found: list[Finding], code_of_rule: str) -> str:
    own = [finding for finding in found if finding.code == code_of_rule]
    rest = sorted({finding.name for finding in found if finding.code != code_of_rule})
    lines: list[str] = []
    for finding in own:
        lines.append(f"{finding.severity}[{finding.name}]: {finding.message}")
        lines += [f"  = {note}" for note in finding.notes]
        lines += [f"  = fix ({fix.safety}): {_fix(fix)}" for fix in finding.fixes]
    if not own:
        lines.append("nothing from this rule")
    if rest:
        lines.append(f"(also: {', '.join(rest)})")
    return "\n".join(lines)


def _fix(fix: Fix) -> str:
    changes = [f"{change.key}: {_value(change.value)}" for change in fix.changes if change.op == "set"]
    return fix.title + (f"  [{', '.join(changes)}]" if changes else "")


def _value(value: Any) -> str:
    return json.dumps(value, default=str) if not isinstance(value, str) else value


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, width=100, allow_unicode=True)


def _of_file(rule: dict[str, Any], example: dict[str, Any], content: Any) -> list[str]:
    """An example that is a file: its text, and the report about it."""
    from tests.rules.texts import check_text

    parts = []
    for name, text in (example.get("beside") or {}).items():
        parts.append(fence(f"# {name}\n{text}", "yaml"))
    with tempfile.TemporaryDirectory() as folder:
        checked = check_text(content, example, Path(folder))
        out = io.StringIO()
        own = [finding for finding in checked.findings if finding.code == rule["code"]]
        for finding in own:
            write_finding(out, finding, checked, Style(False))
        output = out.getvalue().replace(folder + os.sep, "").replace(folder, ".") or "nothing from this rule"
    options = [f"--set {key}={value}" for key, value in (example.get("set") or {}).items()]
    options += [f"--env {key}={value}" for key, value in (example.get("env") or {}).items()]
    options += [f"--framework-version {example['version']}"] if example.get("version") else []
    options += [f"--gpu {example['gpu']}"] if example.get("gpu") else []
    options += [f"--nodes / --world-size {example['world_size']}"] if example.get("world_size") else []
    shown = content if len(content) < 3000 else content[:1500] + "\n... (cut)\n"
    language = "bash" if str(example.get("name", "")).endswith(".sh") else "yaml"
    parts += [_where(example, content), fence(_printable(shown), language)]
    if options:
        parts.append(f"With `{' '.join(options)}`:")
    return [*parts, fence(_printable(output))]


def _where(example: dict[str, Any], content: str) -> str:
    if "modules:" in content or "MODEL_ARGS:" in content or example.get("whole"):
        return f"The file `{example.get('name', 'recipe.yaml')}`:"
    framework = example.get("framework", "megatron")
    return f"Overrides of a Primus experiment, framework `{framework}`:"


def _printable(text: str) -> str:
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", text).replace("\t", "→   ")
