"""`edge-runtime agent` as sshd starts it, on a device that is a folder: `turn_agent.py ROOT [WORD...]`.

Who answers is decided as on a device; a client that is gone is waited for a second instead of a minute.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.runtime.agent.entry import main
from edge.runtime.software import answering
from edge.runtime.software.choice import hand_over
from tests.support.process_units import ProcessUnits

if __name__ == "__main__":
    answering._REST_S = 1.0
    root, *words = sys.argv[1:]
    arguments = ["--root", root, *words]
    hand_over(["agent", *arguments])
    sys.exit(main(arguments, units=ProcessUnits(Path(root))))
