"""Holds the models of the export matrix against what the real exporter writes, and shows both to the product.

make exports
make exports ARGS="--only 11- v8-default"      variants whose names begin so
make exports ARGS="--shape-only"               operators and names alone

It makes a Python of its own in .cache/exports with the newest Ultralytics and its torch (6 GB, from the package index),
and exports networks with random weights; no weights are fetched. Two things are held: the operators of our builder
(tests/support/exports) are those of the exporter, and the product's answers on the real file are right. What the
exporter says and does differently since is the finding; exits with 1 then.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx

from edge.model.inspect import inspect_model
from tests.support.exports.build import SIZE, VARIANTS, Variant, build
from tests.support.exports.product import command, draw, faults_of

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".cache/exports"
PYTHON, MADE = HOME / "venv/bin/python", HOME / "made"
PACKAGES = ("ultralytics", "onnx", "onnxruntime", "onnxslim")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], metavar="START", help="variants whose names begin so")
    parser.add_argument("--shape-only", action="store_true", help="do not show the models to the product")
    options = parser.parse_args()
    chosen = [one for one in VARIANTS if one.id.startswith(tuple(options.only))]
    _make_python()
    failed = _exported(chosen)
    found = 0
    for one in chosen:
        faults = [failed[one.id]] if failed.get(one.id) else list(_faults(one, is_shown=not options.shape_only))
        found += bool(faults)
        print(
            f"{'FAULT' if faults else 'same ':5s} {one.id}",
            *(f"\n      {fault}" for fault in faults),
            sep="",
            flush=True,
        )
    print(f"{len(chosen)} exports, {found} with a finding")
    return 1 if found else 0


def _make_python() -> None:
    if (HOME / ".ready").is_file():
        return
    print(f"about 6 GB go to {HOME}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", HOME / "venv"], check=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    (HOME / ".ready").touch()


def _exported(variants: Sequence[Variant]) -> dict[str, str | None]:
    """Let the real exporter write all of `variants`; return what went wrong, by their names."""
    MADE.mkdir(exist_ok=True)
    jobs = [{"name": one.id, "yaml": one.description, "options": {"imgsz": SIZE, **one.options}} for one in variants]
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(HOME), "YOLO_OFFLINE": "true"}
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("real.py"), MADE],
        input=json.dumps(jobs),
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=MADE,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _faults(variant: Variant, *, is_shown: bool) -> list[str]:
    real = MADE / f"{variant.id}.onnx"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faults = _unlike(build(variant, folder / "ours.onnx"), real) if variant.is_as_exported else []
        return [*faults, *(_answers(variant, real, folder) if is_shown else [])]


def _unlike(ours: Path, real: Path) -> list[str]:
    """Return what one graph has and the other has not: operators by kind, and names of what has weights."""
    graphs = [onnx.load(path).graph for path in (ours, real)]
    mine, theirs = (Counter(node.op_type for node in graph.node) for graph in graphs)
    # Untrained biases are equal, and PyTorch writes equal ones once: no trained model has these.
    theirs.pop("Identity", None)
    faults = []
    if mine != theirs:
        faults.append(f"operators: {dict(mine - theirs)} are ours alone, {dict(theirs - mine)} the exporter's")
    first, second = ({node.name for node in graph.node if node.op_type in ("Conv", "MatMul")} for graph in graphs)
    if first != second:
        faults.append(f"names: {sorted(first ^ second)[:4]}")
    return faults


def _answers(variant: Variant, real: Path, folder: Path) -> list[str]:
    """Return what is wrong with the product's answers on the real file."""
    if variant.reads_as is None or variant.options.get("quantize") == 16:
        step = ("inspect", real)
        if variant.reads_as is not None:
            images, _ = draw(inspect_model(real), folder)
            step = ("calibrate", real, "--images", images)
        code, _, told = command(*step)
        wanted = variant.said or "computes in float16"
        return [] if code == 2 and wanted in told else [f"{step[0]} ends with {code}: {told}"]
    return faults_of(real, folder)


if __name__ == "__main__":
    sys.exit(main())
