"""A proof in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edge.roofline.proof import Proof, Step, Verdict

__all__ = ["proof_lines"]

_TITLES = {
    "facts": "what the machine is and has",
    "nodes": "device nodes of the service",
    "cuda": "CUDA",
    "video": "decoding",
    "forms": "the ways to build a model",
    "beside": "a build while a pipeline serves",
    "dla": "DLA",
    "load": "end to end under load",
    "unit": "the unit under systemd",
    "sandbox": "inside the sandbox of the service",
}


def proof_lines(proof: Proof) -> Iterator[str]:
    yield f"{proof.host}, edge-deploy {proof.software}, {proof.made_at}, {proof.seconds:.0f} s"
    for step in proof.steps:
        yield ""
        yield _head(step)
        names = max(len(row.name) for row in step.rows)
        yield from (f"  {row.verdict.value:<8}  {row.name:<{names}}  {row.detail}" for row in step.rows)
    counts = Counter(row.verdict for step in proof.steps for row in step.rows)
    told = ", ".join(f"{counts[one]} {one.value}" for one in Verdict if one is not Verdict.TOLD and counts[one])
    yield ""
    yield f"{proof.verdict.value}: {told}"


def _head(step: Step) -> str:
    number = f"{step.number} " if step.number else ""
    where = ", as the service" if step.as_service and step.number else ""
    return f"{number}{_TITLES.get(step.name, step.name)}{where} ({step.seconds:.0f} s)"
