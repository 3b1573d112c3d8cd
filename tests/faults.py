"""`python -m tests.faults` writes docs/faults.md: which test shows what becomes of each fault.

The tests are found by their names, `test_f<N>_...`; what is known of a fault, and what no test shows, is written here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

__all__ = ["FAULTS", "PAGE", "page", "by_fault"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/faults.md"

FAULTS: dict[int, tuple[str, str, str]] = {
    1: ("Power cut at each step of a push", "whatever the disk holds, a whole release is current", ""),
    2: ("Power cut at each step of a push that fails", "ends on the old release, and marks the new one", ""),
    3: ("A second cut inside recovery", "is recovered from, and a repeated push converges", ""),
    4: ("A sync is left out", "is caught, or a reviewed later sync covers it", ""),
    5: (
        "A call of the file system fails: ENOSPC, EIO, EROFS, EDQUOT, EINTR",
        "a typed error, the old release serves",
        "",
    ),
    6: ("The agent is killed in each state", "the lock is free, the push is resumed", ""),
    7: ("The client is killed in each state", "as F-6; after the switch the device ends the trial alone", ""),
    8: (
        "A link that falls silent without an end",
        "both sides notice, the second push succeeds",
        "the deadlines of 30 s and 15 s are real in the lab only",
    ),
    9: ("A link that is cut within a blob, again and again", "resumed; at most 1 MiB is sent twice for each cut", ""),
    10: ("Two pushes at once", "the second is told who, since when and why, or waits", ""),
    11: (
        "Signature absent, of a stranger, for something else, altered, cut, of another release",
        "exit 4, nothing stored",
        "",
    ),
    12: ("Signer expired, revoked, or with an option that is not known", "exit 4, each with its code", ""),
    13: (
        "An older release, validly signed; an expired one",
        "exit 4; going back on purpose needs a signature for that",
        "",
    ),
    14: (
        "The device's clock says 1970 or 2035",
        "time only ever counts from what was seen; nothing is locked out for good",
        "2035 is judged with a clock that is handed in",
    ),
    15: ("A bit flips in a stored blob or a plan", "found before it is used; fetched or built anew", ""),
    16: (
        "A hostile manifest or bundle",
        "a typed error, within little memory",
        "manifests are fuzzed by coverage in `make fuzz` only",
    ),
    17: (
        "The disk is full before a push, fills while it receives, or has no inodes left",
        "told before a byte flows, or at the byte that finds no room; the next push goes on",
        "the full disk is one in memory, under the real agent",
    ),
    18: ("A release for another class, name, TensorRT or L4T", "exit 4 or 6 by the plan, nothing sent", ""),
    19: (
        "The build crashes, hangs, is killed, or writes half a result",
        "exit 7 within its deadline; the old release serves; no half engine",
        "that systemd leaves the service alone is shown by the units, and in the lab",
    ),
    20: (
        "The engine does not find what the float model finds",
        "no switch, exit 7 with the numbers of each class",
        "one wrong scale is found only if it costs as much as the limits of the golden frames allow",
    ),
    21: (
        "The new release crashes, is never ready, gives no frames, leaks, or is slow",
        "the old release serves again within the trial's deadline; the reason is recorded and published",
        "health and time of the service are scripted; under systemd in the lab",
    ),
    22: ("A camera or the broker was down before the push", "is not blamed on the release, and named", ""),
    23: ("The fallback is broken, too", "the device stops after 3 attempts and asks for a person, exit 9", ""),
    24: ("The system's libraries change under a release", "found at the start; the same release is built anew", ""),
    25: (
        "Fifty targets, some unreachable, unhealthy, full, locked",
        "waves stop at the limit; `--resume` does the rest",
        "",
    ),
    26: ("Ctrl-C once and twice in a rollout", "once: what runs is finished; twice: 130 within a second", ""),
    27: ("The engine hangs", "the watchdog starves", ""),
    28: ("All cameras are down", "the service lives on; a camera is back within 5 s of its server", ""),
    30: (
        "The broker is away for long, at full rate",
        "memory stays within its bound; what is let go is declared",
        "the rate is real, the hour is not",
    ),
    31: (
        "The connection to the broker breaks at random points",
        "nothing is lost undeclared, duplicates are those that were on their way, order is kept on each topic",
        "a thousand of them with EDGE_LONG_TESTS, forty without",
    ),
    32: ("The broker freezes, or acknowledges nothing any more", "is noticed, and all of it is sent again", ""),
    33: (
        "The broker refuses: credentials, busy",
        "the reason is told, never `connected`; five minutes for a refusal",
        "",
    ),
    34: (
        "Receive Maximum, Maximum Packet Size, no retain, no QoS 1",
        "a strict broker sees no violation; what is too large is declared",
        "",
    ),
    35: ("A PUBACK refuses: quota, access list", "retried within a bound, then given up and declared", ""),
    36: ("Two services with one client id", "the fight ends, with the reason", ""),
    37: (
        "The service is killed at random points",
        "what it had accepted is sent by the next start, or declared",
        "two hundred kills with EDGE_LONG_TESTS",
    ),
    38: (
        "The ring of messages is damaged, or has no room; the disk does not answer",
        "set aside and declared; without room messages are in memory, which is said",
        "",
    ),
    39: (
        "Canaries in a camera's password",
        "are in no log, no message and no error",
        "keys and crash dumps are not tried; of the broker's password see tests/integration/publish/test_refusals.py",
    ),
    40: (
        "Packets are lost, a camera's clock is off, a camera changes its size or codec, the clock is set",
        "nothing damaged is inferred, a wrong clock is not believed, the counts balance",
        "the network is not delayed by netem (a link of 300 ms is a proxy of ours)",
    ),
}
"""By number: what happens, what has to be shown, and what is not shown."""

_HEAD = """# Faults, and the tests that show what becomes of them

Written by `python -m tests.faults`, from the names of the tests; a test holds it equal. `docs/reliability.md` has the
numbers of F-1 to F-5. Tests in `tests/lab` need root: `make lab`, and `make lab-machine` for
`test_machine.py`; all others are part of `make test`.

| Fault | What happens | What is shown | By | Not shown |
|---|---|---|---|---|"""


def by_fault() -> dict[int, list[tuple[str, str]]]:
    """Return file and name of each test, by the numbers in its name."""
    found: dict[int, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and (match := re.match(r"test((?:_f\d+)+)_", node.name)):
                for number in re.findall(r"\d+", match[1]):
                    found.setdefault(int(number), []).append((path.relative_to(ROOT).as_posix(), node.name))
    return found


def page() -> str:
    """Return the page."""
    lines = [_HEAD]
    tests = by_fault()
    for number, (happens, shown, missing) in sorted(FAULTS.items()):
        lines.append(f"| F-{number} | {happens} | {shown} | {_cell(tests.get(number, []))} | {missing} |")
    return "\n".join(lines) + "\n"


def _cell(tests: list[tuple[str, str]]) -> str:
    files: dict[str, list[str]] = {}
    for path, name in tests:
        files.setdefault(path, []).append(f"`{name}`")
    return "<br>".join(f"[{path}](../{path}): {', '.join(names)}" for path, names in files.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
