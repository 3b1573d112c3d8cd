"""Runs the service for long while its cameras and its broker are broken, and writes out/soak.md if all is well.

make soak
make soak ARGS="--minutes 60"
make soak ARGS="--dying --minutes 11"      sixteen cameras, one dying every four seconds
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.page import PAGE, page_of
from tests.soak.soak import soak

SIXTEEN, DYING_EVERY_S = 16, 4.0
FAILED = Path(__file__).parents[2] / "out/soak-failed.log"  # what the service of the last soak that failed has said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--cameras", type=int, default=8)
    parser.add_argument("--dying", action="store_true", help="sixteen cameras, one dying every four seconds")
    parser.add_argument("--seed", type=int, default=12, help="of what is broken by chance")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edge-soak-") as folder:
        account = soak(
            Path(folder),
            minutes=options.minutes,
            cameras=SIXTEEN if options.dying else options.cameras,
            dying_every_s=DYING_EVERY_S if options.dying else None,
            seed=options.seed,
        )
        wrong = [*account.broken, *account.late]
        if wrong:
            FAILED.parent.mkdir(exist_ok=True)
            shutil.copy(Path(folder) / "told.txt", FAILED)
    page = page_of(account)
    if not wrong:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    print(page)
    for one in wrong:
        print(f"BROKEN: {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
