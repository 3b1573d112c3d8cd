"""Make the pictures, or those that are named: python -m tools.pictures [NAME ...]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tools.pictures.shots import SHOTS, run_demo

PICTURES = Path(__file__).parents[2] / "docs/pictures"


def main(names: list[str]) -> int:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edge-pictures-") as folder:
        demo = run_demo(Path(folder) / "demo", seconds=20)
        for name in names or SHOTS:
            picture = SHOTS[name](demo)
            (PICTURES / f"{name}.webp").write_bytes(picture)
            sys.stderr.write(f"docs/pictures/{name}.webp {len(picture) / 1000:.0f} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
