"""Mutants that change nothing that a test could see, each with the reason; the page shows them."""

from __future__ import annotations

REVIEWED: dict[str, str] = {}
