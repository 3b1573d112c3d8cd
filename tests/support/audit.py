"""The audit logs of a device, as a person reads them."""

import json

from edge.device.device import Kind
from edge.device.layout import Layout


def audit_lines(layout: Layout, most: int = 100_000) -> list[dict[str, object]]:
    """Return the last lines of all logs, oldest first; a line that a power cut tore is left out."""
    logs = [layout.var / kind.value for kind in Kind]
    paths = [path for log in logs for path in (log.with_name(f"{log.name}.1"), log) if path.exists()]
    lines = [line for path in paths for line in path.read_text().splitlines() if line.endswith("}")]
    return sorted(map(json.loads, lines), key=lambda line: str(line.get("at")))[-most:]
