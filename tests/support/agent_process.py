"""The real agent as a process of its own, on a device that is a folder: `agent_process.py ROOT`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.runtime.agent import main
from tests.support.process_units import ProcessUnits

if __name__ == "__main__":
    (Path(sys.argv[1]) / "agent.pid").write_text(str(os.getpid()))
    sys.exit(main(["--root", sys.argv[1]], units=ProcessUnits(Path(sys.argv[1]))))
