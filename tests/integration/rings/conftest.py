import subprocess
from contextlib import ExitStack, closing

import pytest

from edge.config.schema import MqttConfig
from edge.deploy.rings.hearing import Hearing
from tests.support.command_line import start
from tests.support.field_fleet import FieldFleet
from tests.support.manifests import ssh_key
from tests.support.mosquitto import Mosquitto
from tests.support.pulling import StatingClock, StatingDesk, into_ring, published, pulling_from
from tests.support.registry import LOGIN


@pytest.fixture
def broker(tmp_path):
    with Mosquitto(tmp_path / "broker", is_verbose=False) as running:
        yield running


@pytest.fixture
def mqtt(broker):
    return MqttConfig(host=broker.host, port=broker.port, site="workshop", tls=False)


@pytest.fixture
def hearing(mqtt):
    with Hearing(mqtt, credential=None, base_dir=None) as made:
        yield made


@pytest.fixture
def fleet(broker, registry):
    return FieldFleet(broker.port, f"{registry.host}/farms/gates")


@pytest.fixture
def clock():
    return StatingClock()


@pytest.fixture
def key(tmp_path):
    return ssh_key(tmp_path, "promoter")


@pytest.fixture
def make_desk(registry, key, clock):
    """Makes workstations, which are closed in the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(StatingDesk(registry, key, clock, **options)))


@pytest.fixture
def desk(make_desk):
    return make_desk()


@pytest.fixture
def old(registry, desk, root):
    return published(registry, desk, root.bundle("old"))


@pytest.fixture
def new(registry, desk, root, old):
    return published(registry, desk, root.bundle("new", sequence=2))


@pytest.fixture
def device(root, registry, key):
    into_ring(root, registry, key, "all")
    return pulling_from(registry, root)


PIPELINE = """\
version: 1
model: {{onnx: gates.onnx}}
streams: [{{id: gate, uri: "rtsp://camera/main"}}]
mqtt: {{host: {host}, port: {port}, site: north, tls: false}}
"""


class Typist:
    """Types `edge-deploy ...` as a person or a job, in a folder with a pipeline file, a login and a key."""

    def __init__(self, folder, registry, broker, key):
        self.where = f"{registry.host}/farms/gates"
        self.common = ["--ca", str(registry.certificates.ca), "--login", str(folder / "login"), "--key", str(key)]
        self.pipeline = ["--pipeline", str(folder / "gates.yaml")]
        self._folder = folder
        (folder / "gates.onnx").touch()
        (folder / "gates.yaml").write_text(PIPELINE.format(host=broker.host, port=broker.port))
        (folder / "login").write_text(f"{LOGIN.user}:{LOGIN.password}\n")

    def start(self, *words):
        return start(self._folder, *words)

    def type(self, *words):
        child = self.start(*words)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(words, child.returncode, out, err)


@pytest.fixture
def typist(tmp_path, registry, broker, desk):
    return Typist(tmp_path, registry, broker, tmp_path / "promoter")
