"""`python -m tools.pycuda`: make the wheels that are not there yet, or those that are named (cp310, cp312)."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from edge.deploy.provision.facts import cache, pycuda_folder
from tools.pycuda.make import make_wheel
from tools.pycuda.recipe import DEBIAN, PYCUDA, PYTHONS
from tools.pycuda.root import MakeError, Root


def main() -> int:
    tags = [python.tag for python in PYTHONS]
    parser = argparse.ArgumentParser(prog="python -m tools.pycuda", description=__doc__)
    parser.add_argument("tags", nargs="*", metavar="TAG", help=f"of {', '.join(tags)}; made anew")
    asked = parser.parse_args().tags
    if unknown := set(asked) - set(tags):
        parser.error(f"{', '.join(sorted(unknown))}: expected {' or '.join(tags)}")
    work = cache() / "pycuda-build"
    work.mkdir(parents=True, exist_ok=True)
    try:
        for python in PYTHONS:
            made = list(pycuda_folder().glob(f"{PYCUDA[0].replace('==', '-')}-{python.tag}-*.whl"))
            if made and python.tag not in asked:
                print(f"there already: {made[0]}")
            elif not asked or python.tag in asked:
                _make(python.tag, work)
    except MakeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _make(tag: str, work: Path) -> None:
    python = next(one for one in PYTHONS if one.tag == tag)
    print(f"making pycuda for Python {python.series}: some ten minutes; log: {work / 'log'}", flush=True)
    began = time.monotonic()
    wheel = make_wheel(python, Root(work / f"root-{DEBIAN}", work / "log"), work / "downloads", pycuda_folder())
    print(f"made {wheel} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
