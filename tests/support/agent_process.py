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


def _run(root: str, *silence_s: str) -> int:
    (Path(root) / "agent.pid").write_text(str(os.getpid()))
    if silence_s == ("real",):
        return main(["--root", root], units=RealUnits(Path(root)))
    units = ProcessUnits(Path(root))
    if silence_s == ("for-pull",):
        return main(["--root", root, "--for-pull"], units=units)
    if not silence_s:
        return main(["--root", root], units=units)
    serve(own_stdio(), Device(Layout(Path(root))), units, origin="test", silence_s=float(silence_s[0]))
    return 0


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:]))
