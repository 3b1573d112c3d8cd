"""Mutants that change nothing that a test could see, each with the reason; the page shows them."""

from __future__ import annotations

REVIEWED: dict[str, str] = {
    "edge/device/baseline.py measure_baseline: step: time.sleep(_STEP_S)": "the same is measured, with a busy core",
    "edge/device/durable.py Durable.append_line: order: self.files.sync(path) <-> self.settle(path)": (
        "a line is promised once both are done; a new file that is empty after a cut reads as none"
    ),
    "edge/device/engines.py Engines.admit: step: self._durable.settle(self._layout.engine(key))": (
        "remove_tree syncs the same folder before it removes anything"
    ),
    "edge/device/engines.py Engines.admit: order: self._durable.settle(self._layout.engine(key)) <-> "
    "self._durable.remove_tree(folder)": "remove_tree syncs the same folder before it removes anything",
}
