"""Readers: one per configuration format, each giving a ResolvedDocument."""

from __future__ import annotations
