"""One cable between the host and a device: a veth pair into a network namespace that has no other way out."""

import os
import subprocess
from dataclasses import dataclass

PREFIX = "elab"  # of every interface and namespace that the lab makes


@dataclass(frozen=True, slots=True)
class Cable:
    """`number` makes the addresses: the host is 10.213.N.1, the device 10.213.N.2."""

    number: int

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def host_address(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def device_address(self) -> str:
        return f"10.213.{self.number}.2"

    @property
    def namespace(self) -> str:
        return f"/run/netns/{self.name}"

    def lay(self) -> None:
        ip("link", "add", self.name, "type", "veth", "peer", "name", "host0", "netns", self.name)
        ip("addr", "add", f"{self.host_address}/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        ip("-n", self.name, "addr", "add", f"{self.device_address}/24", "dev", "host0")
        ip("-n", self.name, "link", "set", "host0", "up")
        ip("-n", self.name, "link", "set", "lo", "up")

    def unplug(self) -> None:
        """No packet passes any more, and neither side is told."""
        ip("link", "set", self.name, "down")

    def plug(self) -> None:
        ip("link", "set", self.name, "up")

    def cut(self) -> None:
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, timeout=60)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, timeout=60)


def take_cable() -> Cable:
    """Return a cable that nobody else has; creating the namespace is what takes it."""
    for number in range(1, 255):
        made = subprocess.run(["ip", "netns", "add", f"{PREFIX}{number}"], capture_output=True, timeout=60)
        if made.returncode == 0:
            cable = Cable(number)
            cable.lay()
            return cable
    raise RuntimeError("254 virtual devices are there already")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)


def why_no_namespaces() -> str | None:
    """Return why no network namespace can be made here, or None."""
    probe = f"{PREFIX}p{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=60)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, timeout=60)
    return None
