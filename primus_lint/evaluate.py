"""One recipe as data in, one verdict as data out: the engine behind `primus-lint batch` (design 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ir.run import Target

if TYPE_CHECKING:
    from primus_lint.rules.finding import Finding

FRAMEWORKS = ("megatron", "primus-megatron")


def evaluate(request: dict[str, Any], only: str | None = None) -> dict[str, Any]:
    """Evaluate one request object. Never raises for bad input: `ok` is false and `error` says why."""
    answer: dict[str, Any] = {
        "id": request.get("id") if isinstance(request, dict) else None,
        "ok": False,
        "error": None,
        "legal": None,
        "legal_world_sizes": None,
        "findings": [],
        "memory": None,
        "time": None,
    }
    try:
        _evaluate(request, only, answer)
    except BadRequest as error:
        answer["error"] = str(error)
    return answer


class BadRequest(ValueError):
    """A request that cannot be evaluated; the message says what is wrong and what is legal."""


def _evaluate(request: Any, only: str | None, answer: dict[str, Any]) -> None:
    from primus_lint.lower.megatron import lower
    from primus_lint.lower.megatron.versions import VERSIONS, canonical
    from primus_lint.readers.batch import section_of
    from primus_lint.rules.engine import check
    from primus_lint.rules.worlds import LIMIT, legal_world_sizes

    if not isinstance(request, dict):
        raise BadRequest("a request is a JSON object")
    framework = request.get("framework", "megatron")
    if framework not in FRAMEWORKS:
        raise BadRequest(f"framework {framework!r} is not modelled; legal are {', '.join(FRAMEWORKS)}")
    version = canonical(request.get("version"))
    if version is None:
        raise BadRequest(f"version {request.get('version')!r} is not known; known are {', '.join(VERSIONS)}")
    target = target_of(request.get("target") or {})
    section = section_of(request, framework)
    lowered = lower(section, target, version, framework, request.get("env"), request.get("stack"))
    findings = check(lowered)
    answer["ok"] = True
    answer["findings"] = [finding_data(finding) for finding in findings]
    illegal = any(finding.severity == "error" and finding.stage < 10 for finding in findings)
    if target.world_size is not None:
        answer["legal"] = not illegal
    else:
        sizes = [] if illegal else legal_world_sizes(lowered)
        answer["legal_world_sizes"] = sizes
        answer["legal"] = False if not sizes else (True if len(sizes) == LIMIT else None)


def target_of(data: Any) -> Target:
    """The target object of a request. Raises BadRequest for a wrong type."""
    if not isinstance(data, dict):
        raise BadRequest("target is an object with gpu, world_size and gpus_per_node")
    world = data.get("world_size")
    if world is not None and (not isinstance(world, int) or isinstance(world, bool) or world < 1):
        raise BadRequest(f"target.world_size must be a positive whole number, not {world!r}")
    per_node = data.get("gpus_per_node") or 8
    if not isinstance(per_node, int) or per_node < 1:
        raise BadRequest(f"target.gpus_per_node must be a positive whole number, not {per_node!r}")
    gpu = data.get("gpu")
    return Target(None if gpu is None else str(gpu), world, per_node)


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as batch output (design 4.3)."""
    from primus_lint.rules.compile import STAGES

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
