"""Files that others name: a pipe is refused, not waited for, and a device not read."""

import os

import pytest

from edge.calibrate.cache import read_cache
from edge.calibrate.observations import read_observations
from edge.calibrate.table import read_table
from edge.config.load import load_pipeline
from edge.config.schema import MqttConfig, TlsConfig
from edge.config.targets import read_toml
from edge.deploy.provision.keys import read_public_key, read_revocations
from edge.deploy.rings.trust import read_chain
from edge.errors import EdgeError
from edge.evaluate.labels import CocoLabels, YoloLabels
from edge.media.images import read_image
from edge.model.graph import load_graph, read_model_file
from edge.publish.mqtt.endpoint import endpoint_from_config
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
    "histograms": read_observations,
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
