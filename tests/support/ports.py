"""A TCP port that stays free until its server starts.

Below the range from which Linux takes the ports of outgoing connections (net.ipv4.ip_local_port_range, from 32768):
whoever dials a port of that range again and again while nothing listens there is connected to himself in the end,
and holds the port; so may any other connection of this machine.
"""

import os
import random
import socket

# Each of eight pytest workers has its own part: between the choice of a port and its use, no other can take it.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_PORTS = range(20_000 + 1_500 * _WORKER, 21_500 + 1_500 * _WORKER)
_given: set[int] = set()


def free_port() -> int:
    """Return a port on which nothing listens, each once in a process."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
