"""Write the lock of wheels for all kinds of devices, and say what has changed; `--check` only says.

The package index is asked for metadata, not for wheels; SHA-256 as it states them, over TLS.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from edge.deploy.provision.facts import ENVIRONMENTS, FORMAT, Environment, Lock, LockedWheel, read_lock
from tools.lock.choose import LockError, choose, newest_pip

_PATH = Path(__file__).parents[2] / "edge/deploy/provision/lock.json"


def main() -> int:
    """Return 0; with --check 1 if a newer wheel could be chosen."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exits with 1 if there is anything newer")
    is_check = parser.parse_args().check
    before = read_lock(_PATH.read_bytes()) if _PATH.is_file() else Lock(made_at="", environments={})
    try:
        chosen = _choose_all()
    except LockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    changes = [line for one in ENVIRONMENTS for line in _changes(one, before, chosen[one])]
    print("\n".join(changes) if changes else "nothing newer")
    if changes and not is_check:
        made_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        _PATH.write_text(text_of(Lock(made_at=made_at, environments=chosen)), encoding="utf-8")
    return 1 if changes and is_check else 0


def _choose_all() -> dict[Environment, tuple[LockedWheel, ...]]:
    chosen = {}
    with tempfile.TemporaryDirectory() as folder:
        pip = newest_pip(Path(folder))
        for environment in ENVIRONMENTS:
            print(environment, "...", file=sys.stderr)
            chosen[environment] = choose(environment, pip)
    return chosen


def _changes(environment: Environment, before: Lock, now: tuple[LockedWheel, ...]) -> list[str]:
    old = {one.name: one for one in before.environments.get(environment, ())}
    new = {one.name: one for one in now}
    lines = [f"{environment}: {name} {old[name].version} goes" for name in sorted(old.keys() - new.keys())]
    for name, one in new.items():
        if name not in old:
            lines.append(f"{environment}: {name} {one.version} comes")
        elif old[name] != one:
            lines.append(f"{environment}: {name} {old[name].version} -> {one.version} ({one.wheel})")
    return lines


def text_of(lock: Lock) -> str:
    """Return one wheel per line, so that a diff can be read."""
    parts = []
    for environment, wheels in lock.environments.items():
        lines = ",\n  ".join(json.dumps(_values(one), ensure_ascii=False) for one in wheels)
        parts.append(f' "{environment}": [\n  {lines}\n ]')
    head = f'{{"format": "{FORMAT}", "made_at": "{lock.made_at}", "environments": {{\n'
    return head + ",\n".join(parts) + "\n}}\n"


def _values(wheel: LockedWheel) -> dict[str, object]:
    return {key: value for key, value in dataclasses.asdict(wheel).items() if value not in (None, ())}


if __name__ == "__main__":
    sys.exit(main())
