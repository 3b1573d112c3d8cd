"""What runs on a device before anything is installed there needs the standard library only."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIST = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    room = importlib.import_module(name)
    for module in pkgutil.walk_packages(room.__path__, name + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""

# What stands below every room.
GROUND = {"codec", "deadline", "digest", "reading", "reports", "settings", "untrusted", "writing"}


@pytest.mark.parametrize("room", ["edge.device", "edge.bundle", "edge.transport", "edge.wire"])
def test_a_room_of_the_device_loads_nothing_but_the_standard_library(room):
    # -I -S: no site-packages, no environment, no current folder.
    command = [sys.executable, "-I", "-S", "-c", LIST, str(ROOT), room]
    loaded = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    others = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"edge", "__main__"}
    assert others == set()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("edge.")}
    assert rooms <= {room.partition(".")[2], "errors", "version", *GROUND}
