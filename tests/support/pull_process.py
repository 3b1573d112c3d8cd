"""`edge-runtime pull` as a process, on a device that is a folder, with the agent of one: `pull_process.py ROOT ...`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.runtime.entry import main
from edge.runtime.pull import entry
from edge.transport.pipe import LocalChannel

AGENT = Path(__file__).with_name("agent_process.py")


def _connector_of(root: Path):
    return lambda: LocalChannel([sys.executable, str(AGENT), str(root), "for-pull"])


if __name__ == "__main__":
    entry.connector_of = _connector_of
    sys.exit(main("pull", ["--root", *sys.argv[1:]]))
