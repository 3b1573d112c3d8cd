"""Where both commands begin: each imports what it needs once Ctrl-C is answered."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from edge.cli.interrupts import answer_interrupts

__all__ = ["edge_deploy", "edge_runtime"]


def edge_deploy() -> NoReturn:
    _prepare()
    from edge.cli.edge_deploy import main

    main()


def edge_runtime() -> NoReturn:
    """Run the device's command, by the software of the release that it is for (docs/adr/0018)."""
    _prepare()
    from edge.runtime.software.binding import hand_over

    hand_over(sys.argv[1:])
    from edge.cli.edge_runtime import main

    main()


def _prepare() -> None:
    answer_interrupts()
    # Before NumPy is loaded: its OpenBLAS joins its threads at a process's end, and hangs if one multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
