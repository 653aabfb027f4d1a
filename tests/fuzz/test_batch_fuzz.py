"""Hostile batch requests are answered (the long run: `python -m tests.fuzz.batch`)."""

from __future__ import annotations

from tests.fuzz.batch import requests, survive


def test_hostile_requests_are_answered() -> None:
    failures = [failure for request in requests(250, seed=3) if (failure := survive(request)) is not None]
    assert failures == []
