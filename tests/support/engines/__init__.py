"""A third kind of engine, ONNX Runtime, as anybody would add one: one folder, put where kinds are looked for."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import edge.engine
from edge.engine.kinds import kinds

__all__ = ["FOLDER", "WORKER", "kinds_that_run", "third_kind"]

FOLDER = Path(__file__).parent

# The process that builds, which has to find the third kind too.
WORKER = (
    "import sys, edge.engine\n"
    f"edge.engine.__path__.append({str(FOLDER)!r})\n"
    "from edge.runtime.build.worker import main\n"
    "sys.exit(main(sys.argv[1]))"
)


@contextlib.contextmanager
def third_kind() -> Iterator[None]:
    """Let kinds be looked for in this folder, too."""
    before = edge.engine.__path__
    edge.engine.__path__ = [*before, str(FOLDER)]
    try:
        yield
    finally:
        edge.engine.__path__ = before


def kinds_that_run() -> list[str]:
    """Return the names of all kinds that this machine can run, the third one among them."""
    with third_kind():
        return [name for name, facts in kinds().items() if facts.why_not() is None]
