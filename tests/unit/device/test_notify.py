import os
import socket
import threading
from pathlib import Path

import pytest

from edge.device.units import Notifier, unit_folder
from tests.support.systemd import NotifySocket
from tests.support.wait import wait_until


def test_a_socket_with_a_path_hears_every_line(tmp_path):
    with NotifySocket(tmp_path / "notify") as systemd:
        assert Notifier(systemd.environ).tell("READY=1", "STATUS=2/2 streams")

        wait_until(lambda: systemd.lines == ["READY=1", "STATUS=2/2 streams"], what="both lines")


def test_an_abstract_socket_is_reached_by_its_at_sign():
    with NotifySocket(abstract=f"edge-test-{os.getpid()}") as systemd:
        assert Notifier(systemd.environ).tell("STOPPING=1")

        wait_until(lambda: systemd.lines == ["STOPPING=1"], what="the line")


def test_a_line_break_in_a_status_cannot_add_a_line(tmp_path):
    with NotifySocket(tmp_path / "notify") as systemd:
        Notifier(systemd.environ).tell("STATUS=down: a\nREADY=1")

        wait_until(lambda: systemd.lines, what="the line")
        assert systemd.lines == ["STATUS=down: a READY=1"]


@pytest.mark.parametrize("name", ["", "/nowhere/notify", "@nobody-listens-here", "/" + "x" * 200, "@\0odd"])
def test_where_nobody_listens_nothing_happens(name):
    assert not Notifier({"NOTIFY_SOCKET": name}).tell("READY=1")


def test_a_full_socket_does_not_hold_the_service_up(tmp_path):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})

    taken = []

    def tell_until_it_is_full():
        while notifier.tell("WATCHDOG=1"):  # each call has a deadline of its own
            taken.append(1)

    telling = threading.Thread(target=tell_until_it_is_full, daemon=True)
    telling.start()
    telling.join(30)

    assert not telling.is_alive()
    assert taken
    receiver.close()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_the_one_that_is_meant_for_this_process(environ, expected):
    assert Notifier({"NOTIFY_SOCKET": "/run/x", **environ}).watchdog_s == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a"}, Path("/var/lib/a")),
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, Path("/var/lib/a")),
        ({"STATE_DIRECTORY": ""}, None),
        ({"RUNTIME_DIRECTORY": "/run/a"}, None),
    ],
)
def test_of_several_folders_of_a_unit_the_first_is_taken(environ, expected):
    assert unit_folder("STATE_DIRECTORY", environ) == expected
