"""What a device has taken: counters never sink, and the highest of a channel has a name."""

import pytest

from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.state import Counters, raise_counters, read_counters


def seen(sequence, release=None, channel="stable"):
    return Counters(sequences={channel: sequence}, newest={} if release is None else {channel: release})


@pytest.mark.parametrize(
    ("before", "after", "sequence", "newest"),
    [
        (seen(1, "a"), seen(2, "b"), 2, {"stable": "b"}),
        (seen(2, "a"), seen(1, "b"), 2, {"stable": "a"}),
        (seen(2, "a"), seen(2, "b"), 2, {"stable": "a"}),
        (seen(2), seen(2, "b"), 2, {"stable": "b"}),
        (seen(1, "a"), seen(2), 2, {}),  # a permission to go back moves the counter on, and no release has that
        (seen(0, "a"), seen(0, "b"), 0, {"stable": "a"}),
        (Counters(), seen(0, "b"), 0, {"stable": "b"}),
    ],
)
def test_the_release_that_has_the_highest_sequence_first_is_the_newest(tmp_path, before, after, sequence, newest):
    device = Device(Layout(tmp_path))
    device.layout.var.mkdir(parents=True)
    for one in (before, after, seen(7, "c", "beta")):
        raise_counters(device.layout, device.durable, one)

    found = read_counters(device.layout, device.durable.files)

    assert (found.sequences, found.newest) == ({"stable": sequence, "beta": 7}, {**newest, "beta": "c"})
