"""`edge-runtime prove`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.cli.paths import command
from edge.errors import ConfigError
from edge.roofline.proof import Proof, Step, Verdict, encode_proof
from edge.writing import remedy

if TYPE_CHECKING:
    from edge.runtime.prove.run import StepPlan

__all__ = ["proof_lines", "prove"]

_PROOF_BYTES = 64 << 10  # some 11 KiB on two cores without a GPU
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


@command(
    """
  edge-runtime prove
  sudo edge-runtime prove
  edge-runtime prove --json > edge-proof-gate-01.json

\b
What each step is, and where proofs of others are: docs/proofs/README.md""",
    json="The proof on stdout, and no file.",
)
def prove(as_json: bool) -> int:
    """Prove what works on this machine, in at most ten minutes, and write it to edge-proof-HOST.json here.

    Takes no release: a model, a clip and pictures are part of edge-deploy. Nothing is sent anywhere. The file
    names the machine, and no people, addresses or serial numbers. What serves here goes on, and is slower meanwhile.

    Steps that crash or hang are reported, and the next one begins. With root, or sudo without a password, those about
    devices are done a second time inside the sandbox of the service.

    Exits with 0 where all that is here is proven, 10 where something is slower or worse than expected, 4 where
    something fails.
    """
    from edge.runtime.prove.run import prove as run
    from edge.writing import write_whole

    if not as_json:
        _require_room()
    proof = run(on_step=_tell)
    if as_json:
        click.echo(encode_proof(proof), nl=False)
        return proof.exit_code
    for line in proof_lines(proof):
        click.echo(line)
    path = Path(f"edge-proof-{proof.host}.json")
    try:
        write_whole(path, encode_proof(proof))
    except OSError as error:
        raise _not_written(str(path), error) from None
    click.echo(f"\nwritten to {path}")
    return proof.exit_code


def _tell(step: StepPlan, as_service: bool) -> None:
    click.echo(f"prove {step.number} {step.name}{', as the service' if as_service else ''}", err=True)


def _require_room() -> None:
    """Refuse a folder that takes no file before ten minutes are spent for one."""
    try:
        with tempfile.TemporaryFile(dir=".", buffering=0) as file:
            file.write(bytes(_PROOF_BYTES))
    except OSError as error:
        raise _not_written("edge-proof-HOST.json", error) from None


def _not_written(path: str, error: OSError) -> ConfigError:
    hint = remedy(error, "go to a folder of yours, or use --json")
    return ConfigError(f"{path}: cannot be written here: {error.strerror}", hint=hint)


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
