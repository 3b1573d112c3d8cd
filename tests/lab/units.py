"""Units of a virtual device under other limits than a person would set, so that a story takes seconds."""

import contextlib
from collections.abc import Iterator

from tests.lab.device import VirtualDevice


@contextlib.contextmanager
def drop_in(device: VirtualDevice, unit: str, text: str) -> Iterator[None]:
    """Have `text` count for a unit within the block; a process that runs is not touched."""
    folder = f"/run/systemd/system/{unit}.service.d"
    device.run(f"mkdir -p {folder}; cat > {folder}/99-lab.conf; systemctl daemon-reload", content=text)
    try:
        yield
    finally:
        device.run(f"rm -f {folder}/99-lab.conf; systemctl daemon-reload")
