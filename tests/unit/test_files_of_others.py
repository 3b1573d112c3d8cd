"""Files that others name or write: a pipe is refused, a device not read, a mark of an editor of Windows skipped."""

import os

import pytest

from edge.calibrate.cache import read_cache
from edge.calibrate.table import read_table
from edge.config.credentials import read_credential
from edge.config.pipeline import load_pipeline
from edge.config.schema import MqttConfig, TlsConfig
from edge.config.targets import read_toml
from edge.deploy.provision.keys import read_chain, read_public_key, read_revocations
from edge.device.facts import read_settings
from edge.errors import EdgeError
from edge.evaluate.labels import CocoLabels, YoloLabels
from edge.media.images import read_image
from edge.model.graph import load_graph, read_model_file
from edge.publish.mqtt.endpoint import endpoint_from_config
from edge.registry.login import read_login
from edge.registry.reference import read_pull_settings
from edge.runtime.pull.entry import read_environment
from edge.types import ImageSize


def yolo_labels(path):
    (path.parent / "other.txt").write_text("")
    path.rename(path.parent / "a.txt")
    YoloLabels(path.parent, ["thing"], None).truth("a", ImageSize(width=1, height=1))


READERS = {
    "trust": read_chain,
    "model": read_model_file,
    "graph": load_graph,
    "table": read_table,
    "cache": read_cache,
    "pipeline": load_pipeline,
    "inventory": read_toml,
    "COCO labels": lambda path: CocoLabels(path, ["thing"]),
    "YOLO labels": yolo_labels,
    "image": read_image,
    "key": read_public_key,
    "revocations": lambda path: read_revocations(path, []),
    "authority": lambda path: endpoint_from_config(
        MqttConfig(host="b", tls=TlsConfig(ca=str(path))), client_id="c", base_dir=path.parent
    ),
}


@pytest.mark.parametrize("kind", ["pipe", "endless device"])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, reader, kind):
    path = tmp_path / "named"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    with pytest.raises(EdgeError, match=r"FIFO|device"):
        reader(path)


def credential(path):
    path.chmod(0o600)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CREDENTIALS_DIRECTORY", str(path.parent))
        return read_credential(path.name)


WRITTEN_BY_HAND = {
    "credential": (credential, "admin:secret\n"),
    "inventory": (lambda path: read_toml(path).content, '[[target]]\nname = "gate-01"\n'),
    "settings": (read_settings, 'name = "gate-01"\ncompatible = ["any"]\n'),
    "pull": (read_pull_settings, 'repository = "registry.example/gates"\n'),
    "registry login": (read_login, "edge:secret\n"),
    "proxy": (read_environment, "https_proxy=http://proxy:3128\n"),
    "key": (read_public_key, f"ssh-ed25519 {'A' * 68} mina\n"),
}


@pytest.mark.parametrize(("read", "text"), WRITTEN_BY_HAND.values(), ids=WRITTEN_BY_HAND)
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, read, text):
    (tmp_path / "plain").write_text(text, encoding="utf-8")
    (tmp_path / "marked").write_text(text.replace("\n", "\r\n"), encoding="utf-8-sig")

    assert read(tmp_path / "marked") == read(tmp_path / "plain")
