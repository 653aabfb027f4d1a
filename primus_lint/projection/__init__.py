"""Time: compute, collectives, overlap and schedule of one training step. See `project`."""

from __future__ import annotations

from primus_lint.projection.project import Projection, project, rank_work, step_seconds, why_not

__all__ = ["Projection", "project", "rank_work", "step_seconds", "why_not"]
