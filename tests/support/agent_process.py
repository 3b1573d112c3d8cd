"""The real agent as a process, on a device that is a folder: `agent_process.py ROOT [SILENCE_S|real|for-pull]`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.device.device import Device
from edge.device.layout import Layout
from edge.runtime.agent.serve import main, own_stdio, serve
from tests.support.process_units import ProcessUnits
from tests.support.real_units import RealUnits


def _run(root: Path, *how: str) -> None:
    (root / "agent.pid").write_text(str(os.getpid()))
    if how == ("real",):
        main(root, is_for_pull=False, units=RealUnits(root))
    elif not how or how == ("for-pull",):
        main(root, is_for_pull=bool(how), units=ProcessUnits(root))
    else:
        device, units = Device(Layout(root)), ProcessUnits(root)
        serve(own_stdio(), device, units, origin="test", silence_s=float(how[0]))


if __name__ == "__main__":
    _run(Path(sys.argv[1]), *sys.argv[2:])
