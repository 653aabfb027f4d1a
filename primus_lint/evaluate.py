"""One recipe as data in, one verdict as data out: the engine behind `primus-lint batch` (design 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint import frameworks
from primus_lint.ir.run import Target
from primus_lint.lower.versions import canonical, versions
from primus_lint.readers.batch import RequestError, read_batch
from primus_lint.rules.judge import findings_of
from primus_lint.rules.worlds import LIMIT
from primus_lint.subject import Subject

if TYPE_CHECKING:
    from primus_lint.rules.finding import Finding


def evaluate(request: Any, only: str | None = None) -> dict[str, Any]:
    """Evaluate one request object. Never raises for bad input: `ok` is false and `error` says why.

    `only` ("legality", "memory", "time") leaves the other parts null.
    """
    answer: dict[str, Any] = {
        "id": request.get("id") if isinstance(request, dict) else None,
        "ok": False,
        "error": None,
        "legal": None,
        "legal_world_sizes": None,
        "findings": [],
        "memory": None,
        "time": None,
        "abstained": {"memory": None, "time": None},
    }
    try:
        _fill(answer, subject_of(request), only)
        answer["ok"] = True
    except RequestError as error:
        answer["error"] = str(error)
    except Exception as error:  # a bug must not stop the other lines of a batch
        answer.update(dict.fromkeys(("legal", "legal_world_sizes", "memory", "time")), findings=[])
        answer["error"] = f"internal error, please report it: {type(error).__name__}: {error}"
    return answer


def _fill(answer: dict[str, Any], subject: Subject, only: str | None) -> None:
    if only in (None, "legality"):
        findings = findings_of(subject) if only is None else subject.conditions
        findings.sort(key=lambda finding: (finding.stage, finding.order, finding.code))
        answer["findings"] = [finding_data(finding) for finding in findings]
        answer["legal"], answer["legal_world_sizes"] = verdict(subject, findings)
    from primus_lint.report.json_report import abstained_data, memory_data, time_data

    if only in (None, "memory"):
        answer["memory"] = memory_data(subject)
    if only in (None, "time"):
        answer["time"] = time_data(subject)
    answer["abstained"] = abstained_data(subject, only)


def verdict(subject: Subject, findings: list[Finding]) -> tuple[bool | None, list[int] | None]:
    """Legal or not; without a world size also the legal sizes, and None when only some are."""
    illegal = any(finding.severity == "error" and is_legality(finding) for finding in findings)
    if not subject.grid_known:
        return (False if illegal else None), None
    if subject.target.world_size is not None:
        return not illegal, None
    sizes = [] if illegal else subject.legal_world_sizes
    if not sizes:
        return False, sizes
    return (True if len(sizes) == LIMIT else None), sizes


def is_legality(finding: Finding) -> bool:
    """Whether a finding says that the program stops (or builds another model than asked), memory apart."""
    return finding.code[0] not in "MT"


def subject_of(request: Any) -> Subject:
    """The subject of a request. Raises RequestError."""
    if not isinstance(request, dict):
        raise RequestError("a request is a JSON object")
    framework, named = str(request.get("framework", "megatron")), request.get("version")
    version = canonical(framework, named) if isinstance(named, (str, type(None))) else None
    if version is None:
        raise RequestError(f"version {named!r} is not known; known are {', '.join(versions(framework))}")
    for name in ("env", "stack"):
        if not isinstance(request.get(name), (dict, type(None))):
            raise RequestError(f"{name} is an object or null")
    document = read_batch(request)
    subject = frameworks.subject_of(document, document.sections[0], target_of(request.get("target")), version)
    subject.framework = framework
    subject.env = request.get("env")
    subject.stack = request.get("stack")
    return subject


def target_of(data: Any) -> Target:
    """The target object of a request. Raises RequestError for a wrong type or an unknown GPU."""
    from primus_lint.target import canonical_gpu, node_size

    data = data or {}
    if not isinstance(data, dict):
        raise RequestError("target is an object with gpu, world_size and gpus_per_node")
    for name in ("world_size", "gpus_per_node"):
        value = data.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise RequestError(f"target.{name} must be a positive whole number, not {value!r}")
    gpu = data.get("gpu")
    if gpu is None:
        return Target(None, data.get("world_size"), data.get("gpus_per_node") or 8)
    from primus_lint.hardware import accelerator, names

    if not isinstance(gpu, str) or accelerator(gpu) is None:
        raise RequestError(f"target.gpu {gpu!r} is not known; known are {', '.join(names())}")
    return Target(canonical_gpu(gpu), data.get("world_size"), data.get("gpus_per_node") or node_size(gpu))


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as batch output (design 4.3)."""
    from primus_lint.rules.templates import STAGES

    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "catalogue_ids": list(finding.catalogue),
        "stage": STAGES[finding.stage],
        "message": finding.message,
        "keys": list(finding.keys),
    }
