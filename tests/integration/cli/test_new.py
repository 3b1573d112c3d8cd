"""`edge-deploy new` on real parts: cameras over RTSP, with passwords and without, clips, brokers, all that fails."""

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import cv2
import pytest

from edge.config.credentials import Credential, read_credential
from edge.config.pipeline import load_pipeline
from tests.support.clips import write_clip
from tests.support.command_line import started_on_terminal
from tests.support.demo_model import MODEL
from tests.support.manifests import fingerprint_of, make_certificates, make_self_signed
from tests.support.mosquitto import Mosquitto
from tests.support.ports import free_port
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.rtsp_cameras import web_cameras

pytestmark = pytest.mark.slow_but(
    "test_cameras_and_clips_become_a_file_that_runs_to_its_first_detection",
    "test_a_wrong_password_is_refused_not_kept_and_not_told",
    reason="commands on further models and options",
)
BIN = Path(sys.executable).parent
USER, PASSWORD = "bob", "s3cr: t@/x"
QUOTED = "s3cr%3A%20t%40%2Fx"
LOGIN = f"{USER}:{PASSWORD}"


@pytest.fixture(autouse=True)
def _gstreamer():
    require_gstreamer("rtspsrc", "rtph264depay", "avdec_h264", server=True)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    write_clip(folder / "lobby.mp4", count=60, width=640, height=360, fps=25)
    write_clip(folder / "yard.mkv", count=40, width=1920, height=1080, fps=10, codec="libx265")
    (folder / "notes.txt").write_text("none")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    stream = str(write_clip(tmp_path_factory.mktemp("stream") / "a.h264", count=120))
    with RtspServer({"/main": RtspMount(stream, "h264", (USER, PASSWORD)), "/sub": RtspMount("", "jpeg")}) as made:
        made.clip = stream
        yield made


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory):
    stream = str(write_clip(tmp_path_factory.mktemp("stream") / "a.h264", count=120))
    with RtspServer({"/main": RtspMount(stream, "h264")}) as made:
        yield made


class Desk:
    """A folder of somebody who types the command, with a home of their own."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.told = ""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for name in ("EDGE_CAMERA_LOGIN", "EDGE_BROKER_LOGIN", "CREDENTIALS_DIRECTORY"):
            monkeypatch.delenv(name, raising=False)

    def new(self, *arguments, expected=0, model=MODEL, **environ):
        done = subprocess.run(
            [BIN / "edge-deploy", "new", *map(str, (model, *arguments))],
            cwd=self.folder, env={**os.environ, **environ}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        self.told = done.stdout + done.stderr
        assert done.returncode == expected, self.told
        assert "Traceback" not in self.told
        return done

    def pipeline(self, name="pipeline.yaml"):
        return load_pipeline(self.folder / name)

    def secrets(self):
        folder = self.folder / "config/edge-deploy/credentials"
        return sorted(folder.iterdir()) if folder.exists() else []

    def require_discretion(self):
        """Nothing but the secrets themselves holds the password, in any spelling."""
        kept = set(self.secrets())
        files = [path for path in self.folder.rglob("*") if path.is_file() and path not in kept]
        for content in (self.told.encode(), *(path.read_bytes() for path in files)):
            assert PASSWORD.encode() not in content
            assert QUOTED.encode() not in content

    def left(self):
        return sorted(path.name for path in self.folder.iterdir() if path.is_file())


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return Desk(tmp_path, monkeypatch)


def test_cameras_and_clips_become_a_file_that_runs_to_its_first_detection(desk, clips, server):
    made = desk.new(server.url("/main"), clips, "-o", "gates.yaml", EDGE_CAMERA_LOGIN=LOGIN)

    config = desk.pipeline("gates.yaml").config
    host, lobby, yard = config.streams
    assert (host.id, host.uri, host.credential) == ("127-0-0-1", server.url("/main"), "127-0-0-1")
    assert (lobby.id, lobby.credential, yard.id) == ("lobby", None, "yard")
    assert read_credential("127-0-0-1") == Credential(user=USER, password=PASSWORD)
    assert [path.stat().st_mode & 0o777 for path in desk.secrets()] == [0o600]
    assert config.batch.max_frames == 3
    text = (desk.folder / "gates.yaml").read_text()
    assert re.search(r"id: 127-0-0-1  # h264, 320x180, (29|30|31)(\.\d)? fps; gates-127-0-0-1.jpg", text)
    assert "id: lobby  # h264, 640x360, 25 fps; gates-lobby.jpg" in text
    assert "id: yard  # h265, 1920x1080, 10 fps; gates-yard.jpg" in text
    shapes = [cv2.imread(str(desk.folder / f"gates-{one.id}.jpg")).shape for one in config.streams]
    assert shapes == [(180, 320, 3), (360, 640, 3), (720, 1280, 3)]  # no larger than the camera, nor than 1280
    assert "passed over  1 other file\n" in made.stdout
    desk.require_discretion()

    doctor, run = next_commands(made.stdout)
    assert run[-2:] == [">", "gates.jsonl"]  # a terminal shows what is counted, not each message
    done = subprocess.run(doctor, cwd=desk.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert first_detection(run[:-2], desk.folder)["schema"] == "edge.detections/1"


def test_a_camera_whose_frames_are_far_apart_gets_the_patience_that_it_wants(desk):
    with web_cameras() as cameras:
        desk.new(f"{cameras}/one-in-five-seconds", f"{cameras}/ok", "--timeout", "30")

    assert [stream.stall_s for stream in desk.pipeline().config.streams] == [30, 3]


def next_commands(told):
    """The lines behind `Next:`, as a shell would take them."""
    lines = told.partition("Next:\n")[2].splitlines()
    assert len(lines) == 2, told
    return [shlex.split(line) for line in lines]


def first_detection(command, folder):
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            for line in process.stdout:
                message = json.loads(line)
                if message.get("detections"):
                    return message
            raise AssertionError("it ended without a detection")
        finally:
            process.kill()


def test_what_cannot_be_reached_is_said_left_as_a_comment_and_waited_for_side_by_side(desk, clips, unlocked):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
        begun = time.monotonic()
        made = desk.new(
            clips / "lobby.mp4", f"rtsp://127.0.0.1:{free_port()}/dead", "rtsp://no-such-host.invalid/x",
            *(f"rtsp://127.0.0.{number}:{silent.getsockname()[1]}/hangs" for number in range(1, 7)),
            f"rtsp://localhost:{silent.getsockname()[1]}/hangs", unlocked.url("/nothing"), "/dev/video97",
            "--timeout", "6", "--json", expected=3,
        )  # fmt: skip
        assert (
            time.monotonic() - begun < 60
        )  # one after the other it would be more: seven hang for six seconds and more

    streams = {one["id"]: one for one in json.loads(made.stdout)["streams"]}
    assert len(streams) == 12
    assert [name for name, one in streams.items() if one["problem"] is None] == ["lobby"]
    assert "ls -l /dev/video*" in streams["video97"]["problem"]
    assert [one.id for one in desk.pipeline().config.streams] == ["lobby"]
    text = (desk.folder / "pipeline.yaml").read_text()
    for one in streams.values():
        assert (f"  # - id: {one['id']}\n  #   uri: {one['uri']}\n" in text) == (one["id"] != "lobby")
    assert desk.left() == ["pipeline-lobby.jpg", "pipeline.yaml"]
    uncommented = text.replace("  # - id", "  - id").replace("  #   uri", "    uri")
    (desk.folder / "all.yaml").write_text(uncommented)
    assert len(desk.pipeline("all.yaml").config.streams) == 12


def test_where_no_camera_is_seen_nothing_is_written(desk):
    desk.new(f"rtsp://127.0.0.1:{free_port()}/a", f"rtsp://127.0.0.1:{free_port()}/b", expected=3)

    assert "error: no camera was seen, and nothing is written:" in desk.told
    assert desk.told.count("reaches its port") == 2
    assert desk.left() == []


@pytest.mark.parametrize("how", ["address", "environment", "kept"])
def test_a_wrong_password_is_refused_not_kept_and_not_told(desk, clips, server, how):
    wrong, environ = server.url("/main"), {}
    if how == "address":
        wrong = wrong.replace("//", f"//{USER}:{QUOTED}x@")
    elif how == "environment":
        environ["EDGE_CAMERA_LOGIN"] = LOGIN + "x"
    else:
        folder = desk.folder / "config/edge-deploy/credentials"
        folder.mkdir(parents=True)
        (folder / "127-0-0-1").write_text(LOGIN + "x")
        (folder / "127-0-0-1").chmod(0o600)

    desk.new(wrong, clips / "lobby.mp4", "-v", expected=3, **environ)

    assert "Unauthorized; it refuses this user and password: " in desk.told
    assert "the stream's credential" not in desk.told
    assert len(desk.secrets()) == (how == "kept")
    text = (desk.folder / "pipeline.yaml").read_text()
    assert "  #   credential: 127-0-0-1  # " in text
    assert "user:password; chmod 600" in text
    desk.require_discretion()


@pytest.mark.parametrize("how", ["address", "kept", "named"])
def test_a_login_is_taken_from_where_it_is(desk, server, how):
    folder = desk.folder / "config/edge-deploy/credentials"
    name = {"address": None, "kept": "127-0-0-1", "named": "site"}[how]
    if name is not None:
        folder.mkdir(parents=True)
        (folder / name).write_text(LOGIN)
        (folder / name).chmod(0o600)
    url = server.url("/main").replace("//", f"//{USER}:{QUOTED}@") if how == "address" else server.url("/main")

    made = desk.new(url, *(["--credential", "site"] if how == "named" else []), "--json", "-vv")

    assert desk.pipeline().config.streams[0].credential == (name or "127-0-0-1")
    assert json.loads(made.stdout)["secrets"] == (["127-0-0-1"] if how == "address" else [])
    assert [path.name for path in desk.secrets()] == [name or "127-0-0-1"]
    desk.require_discretion()


@pytest.mark.parametrize("option", [[], ["--credential", "127-0-0-1"]])
def test_a_secret_goes_to_what_asks_for_a_login_and_to_nothing_else_behind_its_address(
    desk, server, unlocked, tmp_path, option
):
    folder = desk.folder / "config/edge-deploy/credentials"
    folder.mkdir(parents=True)
    (folder / "127-0-0-1").write_text(LOGIN)
    (folder / "127-0-0-1").chmod(0o600)
    with Mosquitto(tmp_path / "broker") as broker:
        desk.new(server.url("/main"), unlocked.url("/main"), "--broker", f"mqtt://127.0.0.1:{broker.port}", *option)

    config = desk.pipeline().config
    assert [stream.credential for stream in config.streams] == ["127-0-0-1", None]
    assert config.mqtt.credential is None


class Typist:
    """The command at a terminal of its own."""

    def __init__(self, desk, *arguments):
        self.desk = desk
        command = [BIN / "edge-deploy", "new", *arguments]
        self._process, self._terminal = started_on_terminal(*command, cwd=desk.folder)
        self.shown = ""

    def wait_for(self, text):
        until = time.monotonic() + 60
        while text not in self.shown:
            assert select.select([self._terminal], [], [], until - time.monotonic())[0], self.shown
            self.shown += os.read(self._terminal, 4096).decode()

    def type(self, text):
        os.write(self._terminal, text.encode())

    def log_in(self, question):
        for asked, answer in ((question, USER), ("Password", PASSWORD)):
            self.wait_for(asked)
            self.type(f"{answer}\n")

    def interrupt(self):
        """Press Ctrl-C, again where it came between a prompt and its read, which Python's own `input` does not see."""
        for _ in range(6):
            self.type("\x03")
            until = time.monotonic() + 5
            while (
                "interrupted" not in self.shown
                and select.select([self._terminal], [], [], max(0, until - time.monotonic()))[0]
            ):
                self.shown += os.read(self._terminal, 4096).decode()
            if "interrupted" in self.shown:
                return

    def end(self):
        try:
            while piece := os.read(self._terminal, 4096):
                self.shown += piece.decode()
        except OSError:  # how a terminal says that nobody writes to it any more
            pass
        os.close(self._terminal)
        self.desk.told = self.shown
        return self._process.wait(60)


def test_a_person_is_asked_once_for_each_host_and_the_password_is_not_shown(desk, server):
    typist = Typist(desk, MODEL, server.url("/main"), server.url("/sub"))
    typist.log_in("wants a login. User")

    assert typist.end() == 3, typist.shown  # the other path of the server is closed to this user
    assert typist.shown.count("wants a login") == 1
    assert [one.credential for one in desk.pipeline().config.streams] == ["127-0-0-1"]
    assert read_credential("127-0-0-1").password == PASSWORD
    desk.require_discretion()


@pytest.fixture
def encrypted(tmp_path, server):
    """Serve the two paths of a camera with a login, and with a certificate that only itself vouches for."""
    own = make_self_signed(tmp_path / "own")
    mounts = {
        "/main": RtspMount(server.clip, "h264", (USER, PASSWORD)),
        "/sub": RtspMount("", "jpeg", (USER, PASSWORD)),
    }
    with RtspServer(mounts, tls=(own.certificate, own.key)) as made:
        made.fingerprint = fingerprint_of(own).replace(":", "").lower().replace("sha256", "sha256:")
        yield made


def test_a_person_compares_the_fingerprint_of_a_camera_once_and_then_logs_in(desk, encrypted):
    typist = Typist(desk, MODEL, encrypted.url("/main"), encrypted.url("/sub"))
    typist.wait_for("Is it the camera's?")
    assert encrypted.fingerprint in typist.shown
    typist.type("y\n")
    typist.log_in("wants a login. User")

    assert typist.end() == 0, typist.shown
    assert typist.shown.count("Is it the camera's?") == 1
    streams = desk.pipeline().config.streams
    assert [(one.tls.fingerprint, one.credential) for one in streams] == [(encrypted.fingerprint, "127-0-0-1")] * 2
    desk.require_discretion()


def test_without_a_terminal_the_line_to_write_is_said_and_what_is_trusted_is_named_beforehand(desk, clips, encrypted):
    url, clip = encrypted.url("/main"), clips / "lobby.mp4"
    made = desk.new(url, clip, "--json", "-o", "a.yaml", expected=3, EDGE_CAMERA_LOGIN=LOGIN)

    assert json.loads(made.stdout)["streams"][0]["fingerprint"] == encrypted.fingerprint
    text = (desk.folder / "a.yaml").read_text()
    assert f'  #   tls: {{fingerprint: "{encrypted.fingerprint}"}}' in text
    (desk.folder / "b.yaml").write_text(text.replace("  # - id", "  - id").replace("  #   ", "    "))
    assert desk.pipeline("b.yaml").config.streams[1].tls.fingerprint == encrypted.fingerprint

    desk.new(url, clip, "-o", "c.yaml", "--trust", "sha256:" + "0" * 64, expected=3, EDGE_CAMERA_LOGIN=LOGIN)
    assert desk.pipeline("c.yaml").config.streams[0].id == "lobby"
    desk.new(
        url, "-o", "d.yaml", "--trust", encrypted.fingerprint.upper().replace("SHA", "sha"), EDGE_CAMERA_LOGIN=LOGIN
    )
    assert desk.pipeline("d.yaml").config.streams[0].tls.fingerprint == encrypted.fingerprint
    desk.new(url, "-o", "e.yaml", "--trust", "abc", expected=2)
    assert "--trust: expected sha256:" in desk.told


def test_the_authority_of_a_sites_cameras_is_named_once(desk, tmp_path):
    made = make_certificates(desk.folder / "pki", host="127.0.0.1")
    with RtspServer({"/sub": RtspMount("", "jpeg")}, tls=(made.certificate, made.key)) as camera:
        desk.new(camera.url("/sub"), "--camera-ca", made.ca)

    assert desk.pipeline().config.streams[0].tls.ca == "pki/ca.pem"


@pytest.mark.parametrize("moment", ["User", "Password", "looking at"])
def test_ctrl_c_is_taken_at_once_and_leaves_nothing(desk, server, moment):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = [f"rtsp://127.0.0.1:{silent.getsockname()[1]}/hangs", "--timeout", "300"]
        typist = Typist(desk, MODEL, server.url("/main"), *(hangs if moment == "looking at" else []))
        if moment == "Password":
            typist.wait_for("User")
            typist.type(f"{USER}\n")
        typist.wait_for(moment)
        begun = time.monotonic()
        typist.interrupt()

        assert typist.end() == 130, typist.shown
        assert time.monotonic() - begun < 30
    assert "interrupted" in typist.shown
    assert "Traceback" not in typist.shown
    assert (desk.left(), desk.secrets()) == ([], [])


def test_an_interrupt_from_a_script_leaves_nothing(desk, clips):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = [f"rtsp://127.0.0.1:{silent.getsockname()[1]}/hangs", "--timeout", "300"]
        process = subprocess.Popen(
            [BIN / "edge-deploy", "new", MODEL, clips, *hangs], cwd=desk.folder, stderr=subprocess.PIPE, text=True
        )
        assert "looking at 3 cameras" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]

    assert (process.returncode, told.strip()) == (130, "interrupted")
    assert desk.left() == []


def test_nothing_is_overwritten_unless_that_is_asked_for(desk, clips):
    clip = clips / "lobby.mp4"
    (desk.folder / "pipeline-lobby.jpg").write_text("mine")
    desk.new(clip, expected=2)
    assert "pipeline-lobby.jpg: is there already; name another file with -o, or replace it with --force" in desk.told
    assert desk.left() == ["pipeline-lobby.jpg"]

    desk.new(clip, "--force")
    before = (desk.folder / "pipeline.yaml").read_bytes()
    desk.new(clip, "-o", "pipeline.yaml", expected=2)
    assert "pipeline.yaml: is there already" in desk.told
    assert (desk.folder / "pipeline.yaml").read_bytes() == before


def test_of_two_at_once_the_second_is_refused(desk, clips):
    command, more = (
        [BIN / "edge-deploy", "new", MODEL, clips / "lobby.mp4"],
        {"cwd": desk.folder, "stderr": subprocess.PIPE},
    )
    both = [subprocess.Popen(command, text=True, **more) for _ in range(2)]
    told = [process.communicate(timeout=120)[1] for process in both]

    assert sorted(process.returncode for process in both) == [0, 2], told
    assert "is there already" in "".join(told)


def test_the_file_never_takes_the_place_of_what_it_is_made_of(desk, clips):
    clip = desk.folder / "a.mp4"
    clip.write_bytes((clips / "lobby.mp4").read_bytes())
    before = clip.read_bytes()

    for given in ("a.mp4", f"file://{clip}", desk.folder):
        desk.new(given, "-o", "a.mp4", "--force", expected=2)
        assert "(CAMERA...)" in desk.told
    assert clip.read_bytes() == before


def test_a_model_that_is_none_is_said_before_anybody_is_asked(desk, clips):
    (desk.folder / "x.onnx").write_text("<html>")
    desk.new(clips / "lobby.mp4", model="x.onnx", expected=2)

    assert "error: x.onnx:" in desk.told
    assert desk.left() == ["x.onnx"]


def test_a_pipe_is_refused_and_not_waited_for(desk):
    os.mkfifo(desk.folder / "a.mp4")
    desk.new("a.mp4", expected=2)

    assert "expected a file, this is a pipe or a device" in desk.told


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_broker_that_takes_us_in_gets_the_messages(desk, clips, tmp_path, is_closed):
    users = {USER: PASSWORD} if is_closed else None
    with Mosquitto(tmp_path / "broker", users=users) as broker:
        environ = {"EDGE_BROKER_LOGIN": LOGIN} if is_closed else {}
        made = desk.new(
            clips / "lobby.mp4", "--broker", f"mqtt://127.0.0.1:{broker.port}", "--site", "north", **environ
        )
        config = desk.pipeline().config

        assert (config.mqtt.host, config.mqtt.port, config.mqtt.site) == ("127.0.0.1", broker.port, "north")
        assert (config.mqtt.tls, config.mqtt.credential) == (False, "127-0-0-1" if is_closed else None)
        assert config.publish.jsonl is None
        assert f"127.0.0.1:{broker.port} (plain text) takes us in" in made.stdout
        run = next_commands(made.stdout)[1]
        assert ">" not in run
        done = subprocess.run(run, cwd=desk.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert re.search(r"mqtt: [1-9]\d* messages delivered, 0 dropped, 0 undelivered", done.stdout + done.stderr)
    (tmp_path / "broker/passwords").unlink(missing_ok=True)
    desk.require_discretion()


def test_the_login_of_a_broker_is_asked_for_by_that_name(desk, clips, tmp_path):
    with Mosquitto(tmp_path / "broker", users={USER: PASSWORD}) as broker:
        typist = Typist(desk, MODEL, clips / "lobby.mp4", "--broker", f"mqtt://127.0.0.1:{broker.port}")
        typist.log_in("the broker 127.0.0.1 wants a login. User")

        assert typist.end() == 0, typist.shown
        assert desk.pipeline().config.mqtt.credential == "127-0-0-1"


def test_a_broker_with_tls_and_an_authority_of_its_own(desk, clips, tmp_path):
    certificates = make_certificates(tmp_path / "pki")
    with Mosquitto(tmp_path / "broker", tls=certificates) as broker:
        desk.new(clips / "lobby.mp4", "--broker", f"localhost:{broker.port}", "--ca", certificates.ca)
        desk.new(clips / "lobby.mp4", "--broker", f"localhost:{broker.port}", "-o", "b.yaml", expected=3)

    assert desk.pipeline().config.mqtt.tls.ca == "pki/ca.pem"
    assert "mqtt.tls.ca" in (desk.folder / "b.yaml").read_text()


@pytest.mark.parametrize("why", ["absent", "hangs", "wants a login", "login is wrong", "speaks no TLS"])
def test_a_broker_that_does_not_is_said_and_left_as_a_comment(desk, clips, tmp_path, why):
    environ = {"EDGE_BROKER_LOGIN": LOGIN + "x"} if why == "login is wrong" else {}
    users = {USER: PASSWORD} if "login" in why else None
    scheme = "mqtts" if why == "speaks no TLS" else "mqtt"
    with Mosquitto(tmp_path / "broker", users=users) as broker, socket.create_server(("127.0.0.1", 0)) as silent:
        port = {"absent": free_port(), "hangs": silent.getsockname()[1]}.get(why, broker.port)
        desk.new(
            clips / "lobby.mp4", "--broker", f"{scheme}://127.0.0.1:{port}", "--timeout", "4", expected=3, **environ
        )

    expected = {
        "absent": f"127.0.0.1:{port}",
        "hangs": "does not answer a CONNECT",
        "wants a login": "(mqtt.credential; ",
        "login is wrong": "user name or password (mqtt.credential; listen --credential) may be wrong",
        "speaks no TLS": "plain text has to be asked for",
    }
    assert f"not reached: 127.0.0.1:{port}" in desk.told
    assert expected[why] in desk.told
    assert expected[why] in (desk.folder / "pipeline.yaml").read_text()
    assert (desk.pipeline().config.mqtt, desk.secrets()) == (None, [])
    (tmp_path / "broker/passwords").unlink(missing_ok=True)
    desk.require_discretion()
