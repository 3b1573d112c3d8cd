"""The commands of `edge-runtime` that start in no time and need the standard library only."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from edge.errors import EdgeError
from edge.stdout import write_stdout

if TYPE_CHECKING:
    from edge.device.device import Device

__all__ = ["COMMANDS", "main"]

_INTERNAL_ERROR = 1


def main(command: str, arguments: Sequence[str]) -> int:
    """Run one of `COMMANDS` and return its exit code; problems go to stderr, without a traceback."""
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    os.umask(0o027)  # whatever was set before: files are for the group, and for no other user
    try:
        return COMMANDS[command][1](arguments)
    except EdgeError as error:
        code = getattr(error, "code", "")
        sys.stderr.write(f"error: {error}{f' ({code})' if code else ''}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except Exception as error:  # the border: everything else is ours to mend
        logging.getLogger("edge").info("internal error", exc_info=True)
        sys.stderr.write(f"internal error: {type(error).__name__}: {error}; report it\n")
        return _INTERNAL_ERROR


def _agent(arguments: Sequence[str]) -> int:
    parser = _parser("agent", "  edge-runtime agent")
    parser.add_argument("--for-pull", action="store_true", help="answer what a pull asks for, and refuse all else")
    options = parser.parse_args(arguments)
    from edge.runtime.agent.serve import main as agent

    agent(options.root, is_for_pull=options.for_pull)
    return 0


def _recover(arguments: Sequence[str]) -> int:
    parser = _parser("recover", "  edge-runtime recover --boot")
    parser.add_argument("--boot", action="store_true", help="say that nothing serves yet, as edge-recover.service does")
    options = parser.parse_args(arguments)
    from edge.runtime.trial.rollback import recover_at_boot

    recovery = recover_at_boot(_device(options.root))
    on_trial = ", on trial" if recovery.is_on_trial else ""
    sys.stderr.write(f"{recovery.release or 'no release'}{on_trial}: {recovery.note}\n")
    return 0


def _trial(arguments: Sequence[str]) -> int:
    options = _parser("trial", "  edge-runtime trial").parse_args(arguments)
    from edge.device.units import SystemctlUnits
    from edge.runtime.trial.trial import run_trial

    return run_trial(_device(options.root), SystemctlUnits())


def _rollback(arguments: Sequence[str]) -> int:
    parser = _parser(
        "rollback",
        "  edge-runtime rollback --reason unit-failed\n"
        "  edge-runtime rollback --reason 'wrong cameras' --to 3f9a1c07b2de",
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why, for the audit log and the messages")
    parser.add_argument("--to", metavar="RELEASE", help="a release that is kept here; it goes on trial")
    parser.add_argument("--is-needed", action="store_true", help="change nothing; end with 1 where nothing has failed")
    options = parser.parse_args(arguments)
    from edge.device.units import SystemctlUnits
    from edge.runtime.trial.rollback import go_back, go_to, is_needed

    device = _device(options.root)
    if options.is_needed:
        return 0 if is_needed(device, SystemctlUnits()) else 1
    done = go_back(device, SystemctlUnits(), options.reason) if options.to is None else go_to(device, options.to)
    sys.stderr.write(f"{done.release or 'no release'}: {done.note}\n")
    return 0


def _adopt(arguments: Sequence[str]) -> int:
    options = _parser("adopt", "  edge-runtime adopt").parse_args(arguments)
    from edge.runtime.build.handover import Taken, take_over

    if take_over(_device(options.root)) is not Taken.ANSWER:
        sys.stderr.write("nothing was built that is asked for\n")
    return 0


def _software(arguments: Sequence[str]) -> int:
    options = _parser("software", "  edge-runtime software").parse_args(arguments)
    from edge.device.device import Device
    from edge.device.layout import Layout, become_owner_of
    from edge.runtime.software.install import keep_software

    layout = Layout(options.root)
    become_owner_of(layout.software)
    os.umask(0o022)  # every user of ours runs it
    keep_software(Device(layout))
    return 0


def _facts(arguments: Sequence[str]) -> int:
    options = _parser("facts", "  edge-runtime facts").parse_args(arguments)
    from edge.codec import encode
    from edge.device.facts import gather_facts

    write_stdout(json.dumps(encode(gather_facts(_device(options.root).layout)), indent=2) + "\n")
    return 0


def _health(arguments: Sequence[str]) -> int:
    parser = _parser("health", "  edge-runtime health\n  edge-runtime health --max-age 60")
    parser.add_argument("--max-age", type=float, default=10.0, metavar="S", help="how old its last word may be (10)")
    options = parser.parse_args(arguments)
    from edge.device.health import encode_health, read_health, why_unwell
    from edge.device.layout import Layout

    health = read_health(Layout(options.root).health)
    if health is not None:
        write_stdout(encode_health(health).decode())
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    why = why_unwell(health, now_boottime_ns=now_ns, max_age_s=options.max_age)
    if why is not None:
        sys.stderr.write(f"{why}\n")
    return 0 if why is None else 1


def _pull(arguments: Sequence[str]) -> int:
    parser = _parser("pull", "  edge-runtime pull\n  edge-runtime pull --plan\n  edge-runtime pull --json")
    parser.add_argument("--plan", action="store_true", help="only say what would be done; ends with 10 if anything")
    parser.add_argument("--force", action="store_true", help="ask also a registry that wants to be left alone")
    parser.add_argument("--retry-bad", action="store_true", help="also a release that has failed here before")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON on stdout")
    options = parser.parse_args(arguments)
    from edge.runtime.pull.entry import run_pull

    return run_pull(
        options.root, is_plan=options.plan, is_forced=options.force, retry_bad=options.retry_bad, as_json=options.json
    )


def _device(root: Path) -> Device:
    from edge.device.device import Device
    from edge.device.layout import Layout, become_owner_of

    layout = Layout(root)
    become_owner_of(layout.var)
    return Device(layout)


def _parser(name: str, examples: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"edge-runtime {name}",
        description=COMMANDS[name][0],
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="stands for /; for tests")
    return parser


COMMANDS: Mapping[str, tuple[str, Callable[[Sequence[str]], int]]] = MappingProxyType(
    {
        "agent": ("Answer edge-deploy on stdin and stdout; started over SSH by a push.", _agent),
        "recover": ("After a power cut: make the switch and its state whole again.", _recover),
        "trial": ("Judge the release on trial: commit it, or say why it cannot stay.", _trial),
        "rollback": ("Go back to the release before, whatever has failed.", _rollback),
        "adopt": ("Take over what the builder has built; started by edge-rollback.", _adopt),
        "software": ("Install the software that a release brings; started by edge-software.service.", _software),
        "facts": ("What this device says of itself, as JSON.", _facts),
        "health": (
            "How the serving runtime stands, as JSON; ends with 1 unless it serves. For a container's health check.",
            _health,
        ),
        "pull": (
            "Take the release that this device's ring is to run from its registry; see /etc/edge-deploy/pull.toml.",
            _pull,
        ),
    }
)
"""By name: one line of help, and what runs it."""
