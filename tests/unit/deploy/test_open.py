"""The page of a device that somebody has taken over: cleaned words, pictures that are pictures, or an error."""

import base64
import contextlib
import json

import pytest

from edge.cli.commands.open import _in_browser
from edge.codec import encode
from edge.deploy.open import DevicePage
from edge.device.facts import gather_facts
from edge.errors import DeployError
from edge.wire.peer import DeviceHello
from tests.support.device_root import DeviceRoot
from tests.support.http_client import ask
from tests.support.scripted_device import ScriptedDevice, body

STATUS = {"device": "gate-01", "streams": []}
JPEG = b"\xff\xd8\xff\xe0 and so on"


@pytest.fixture(scope="module")
def hello(tmp_path_factory):
    root = DeviceRoot(tmp_path_factory.mktemp("device"))
    return json.dumps({"verb": "hello", **encode(DeviceHello(facts=gather_facts(root.device.layout), current=None))})


@pytest.fixture
def opened(hello):
    """Open the page of a device that gives these contents by stream; give port, path and the connections made."""
    with contextlib.ExitStack() as stack:

        def start(contents, **options):
            connections = []

            def answers(verb, values):
                content = contents[values["stream"]]
                plain = content if isinstance(content, str) else base64.b64encode(content).decode()
                yield body("ok", values["id"], {"content": plain})

            def connect():
                connections.append(ScriptedDevice(hello, answers))
                return connections[-1]

            page = DevicePage(connect, **options)
            stack.callback(page.close)
            address = page.open()
            port, path = address.removeprefix("http://127.0.0.1:").split("/", 1)
            return int(port), f"/{path}", connections

        yield start


def test_its_words_are_cleaned(opened):
    status = {"device": "a\x1b[31m\u202eb", "streams": [{"id": "\u200b\n"}]}
    port, path, _ = opened({"": json.dumps(status).encode()})
    code, headers, found = ask(port, f"{path}status.json")
    assert (code, headers["content-type"]) == (200, "application/json")
    assert json.loads(found) == {"device": "a?[31m?b", "streams": [{"id": "? "}]}


@pytest.mark.parametrize("content", [b"<html>", b"\xff\xff", b"[" * 100_000, b"[NaN]", b"[1e999]"])
def test_a_status_that_is_none_is_an_error_and_no_traceback(opened, content):
    contents = {"": json.dumps(STATUS).encode()}
    port, path, _ = opened(contents)
    contents[""] = content
    code, headers, found = ask(port, f"{path}status.json")
    assert (code, headers["content-type"]) == (502, "text/plain; charset=utf-8")
    assert b"transfer.protocol" in found


def test_a_picture_that_is_html_never_reaches_the_browser(opened):
    pictures = {"east": b"<script>alert(1)</script>", "west": JPEG, "no-base64": "<>"}
    port, path, _ = opened({"": json.dumps(STATUS).encode(), **pictures})
    code, headers, found = ask(port, f"{path}pictures/east.jpg")
    assert (code, headers["content-type"]) == (502, "text/plain; charset=utf-8")
    assert b"script" not in found
    assert ask(port, f"{path}pictures/west.jpg")[2] == JPEG
    assert ask(port, f"{path}pictures/no-base64.jpg")[0] == 502


def test_a_port_that_is_taken_is_told(opened):
    port, _, _ = opened({"": b"{}"})

    with pytest.raises(DeployError, match="leave --port out") as error:
        opened({"": b"{}"}, port=port)
    assert error.value.code == "request.port"


def test_the_secret_address_is_left_in_no_folder_that_a_person_stands_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))

    with _in_browser("http://127.0.0.1:1/secret/"):
        assert list(tmp_path.iterdir()) == []

    assert len(opened) == 1
