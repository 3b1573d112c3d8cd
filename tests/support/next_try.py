"""When a publisher tries its broker again, by the figure that its status ends with."""

import re


def next_try_s(publisher) -> float:
    """Return the seconds of the wait that the status tells of; 0 when it tells of none."""
    found = re.search(r" ([\d.]+) s$", publisher.status)
    return float(found[1]) if found else 0.0
