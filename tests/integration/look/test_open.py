"""`edge-deploy open`: the status page of a device, over a real sshd whose key may start the agent and nothing else.

And what `status` says of its streams.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse

import pytest

from tests.support.http_client import ask, connect
from tests.support.ports import free_port
from tests.support.showing import needs_chromium
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_without_the_secret_of_the_address_nothing_is_shown",
    "test_a_device_with_a_dead_camera_is_degraded_and_why",
    reason="further views of a service",
)


@pytest.fixture
def opened(tmp_path, deploy):
    """Start `edge-deploy open gate-01` with more arguments; give the process."""
    children = []

    def start(*arguments):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        children.append(subprocess.Popen(deploy("open", *arguments), env=environment, **told))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate(timeout=60)


def address_of(process):
    line = process.stdout.readline().strip()
    assert line.startswith("http://127.0.0.1:"), process.stderr.read()
    parts = urllib.parse.urlsplit(line)
    return parts.port, parts.path


@needs_chromium
def test_the_page_of_a_device_comes_over_ssh_with_its_pictures(service, opened, browser):
    port, path = address_of(opened())
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{port}{path}")
    image = page.locator(".stream img").first.element_handle()
    page.wait_for_function("image => image.naturalWidth > 0 && image.className === ''", arg=image, timeout=60_000)
    assert page.inner_text("#device") == "dev"
    page.close()


def test_without_the_secret_of_the_address_nothing_is_shown(service, opened):
    port, path = address_of(opened())
    assert len(path) > 30
    status, _, body = ask(port, f"{path}status.json")
    assert (status, json.loads(body)["device"]) == (200, "dev")
    for wrong in ("/", "/status.json", f"/{'x' * 32}/status.json", f"/{path[2:]}status.json"):
        assert ask(port, wrong)[0] == 404, wrong
    status, headers, _ = ask(port, path.rstrip("/"))
    assert (status, headers["location"]) == (303, path)
    assert ask(port, f"{path}status.json", Host="evil.example")[0] == 421


def test_ctrl_c_ends_it_while_the_device_does_not_answer(opened, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f'host = "127.0.0.1"\nport = {silent.getsockname()[1]}\nuser = "edge"\n'
        (tmp_path / "targets.toml").write_text(f'[[target]]\nname = "gate-01"\n{place}')
        process = opened()
        held, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=10)
        held.close()

    assert process.returncode == 130, told


def test_ctrl_c_ends_it_whoever_holds_on(service, opened):
    process = opened()
    port, path = address_of(process)
    held = [connect(port) for _ in range(20)]
    assert ask(port, f"{path}status.json")[0] == 200
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.splitlines()[-1]) == (130, "interrupted")
    assert "Traceback" not in told
    for one in held:
        one.close()
    with pytest.raises(ConnectionRefusedError):
        connect(port)


def test_a_device_that_serves_nothing_says_what_to_do(device, opened):
    process = opened()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the service does not show its status page" in told
    assert "edge-deploy status" in told
    assert "device.page" in told


def test_a_connection_that_was_lost_is_opened_again(service, opened, device):
    process = opened()
    port, path = address_of(process)
    pid = int((device.root / "agent.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ask(port, f"{path}status.json")[0] == 200, what="the page has the device again")
    assert int((device.root / "agent.pid").read_text()) != pid


def test_the_address_as_json_on_a_port_of_ones_own(service, opened):
    port = free_port()
    process = opened("--json", "--port", str(port))
    found = json.loads(process.stdout.readline())
    assert found["target"] == "gate-01"
    assert urllib.parse.urlsplit(found["url"]).port == port


@needs_chromium
def test_the_browser_is_led_there_by_a_file_and_no_command_line_holds_the_secret(
    service, opened, browser, tmp_path, monkeypatch
):
    seen = tmp_path / "seen.json"
    script = tmp_path / "browser"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys, urllib.parse\n"
        "path = urllib.parse.unquote(urllib.parse.urlsplit(sys.argv[1]).path)\n"
        "found = {'argv': sys.argv, 'mode': os.stat(path).st_mode & 0o777, 'text': open(path).read()}\n"
        f"open({str(seen) + '.part'!r}, 'w').write(json.dumps(found))\n"
        f"os.rename({str(seen) + '.part'!r}, {str(seen)!r})\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(script))
    _, path = address_of(opened("--browser"))

    wait_until(seen.exists, what="the browser was started")
    found = json.loads(seen.read_text())
    secret = path.strip("/")
    assert secret not in " ".join(found["argv"])
    assert found["mode"] == 0o600
    assert secret in found["text"]
    page = browser.new_page()
    page.goto(urllib.parse.urljoin(found["argv"][1], "."))  # where files are, so that it comes from one
    page.goto(found["argv"][1])
    page.wait_for_function("() => document.querySelector('#device')?.textContent === 'dev'", timeout=60_000)
    page.close()


@pytest.fixture
def status(tmp_path, deploy, monkeypatch):
    """Run `edge-deploy status gate-01` with more arguments; give what it printed, and said."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "workstation"))

    def run(*arguments):
        done = subprocess.run(deploy("status", *arguments), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def test_a_device_with_a_dead_camera_is_degraded_and_why(service, status):
    def is_degraded():
        return json.loads(ask(service.port, "/status.json")[2])["state"] == "degraded"

    wait_until(is_degraded, what="the camera is down")
    shown, _ = status("--json")
    assert json.loads(shown)["gate-01"]["device_state"] == {"state": "degraded", "reason": "down: gone"}
    shown, _ = status()
    assert "device    degraded: down: gone\n" in shown
    shown, told = status("--table")
    head, row = shown.splitlines()
    assert row[head.index("DEVICE") :].split()[0] == "degraded"
    assert "gate-01: degraded: down: gone" in told


def test_a_device_whose_service_is_not_there_says_nothing_of_it(status):
    shown, _ = status("--json")
    assert json.loads(shown)["gate-01"]["device_state"] is None
    shown, _ = status()
    assert "device  " not in shown
    head, row = status("--table")[0].splitlines()
    assert row[head.index("DEVICE") :].split()[0] == "-"
