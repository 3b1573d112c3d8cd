"""`edge-runtime`: the device's command. What a push and the boot start needs no more than the standard library."""

from __future__ import annotations

import sys
from typing import NoReturn

from edge.cli.interrupts import hand_over_interrupts
from edge.runtime.entry import COMMANDS
from edge.runtime.entry import main as run_light

__all__ = ["main"]


def main() -> NoReturn:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        hand_over_interrupts()
        sys.exit(run_light(arguments[0], arguments[1:]))
    from edge.cli.run_command import run_command
    from edge.cli.runtime_commands import edge_runtime

    run_command(edge_runtime, is_service=True)


if __name__ == "__main__":
    main()
