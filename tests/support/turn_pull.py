"""`edge-runtime pull` as its unit starts it, on a device that is a folder: `turn_pull.py ROOT [OPTION...]`.

Who looks is decided as on a device; each third look is that of what is installed, instead of each sixteenth.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.runtime.entry import main
from edge.runtime.pull import entry, looking
from edge.runtime.software.choice import hand_over
from edge.transport.local import LocalChannel

AGENT = Path(__file__).with_name("turn_agent.py")


def _connector_of(root: Path):
    return lambda: LocalChannel([sys.executable, str(AGENT), str(root), "--for-pull"])


if __name__ == "__main__":
    entry.connector_of = _connector_of
    looking.LOOKS = 2
    arguments = ["--root", *sys.argv[1:]]
    hand_over(["pull", *arguments])
    sys.exit(main("pull", arguments))
