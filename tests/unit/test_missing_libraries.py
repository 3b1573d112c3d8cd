"""A library that is not installed, or cannot be loaded: the error names it and says what to do."""

import sys

import pytest

from edge.demo import broker
from edge.engine.openvino import binding as openvino
from edge.errors import MissingDependencyError
from edge.media import images
from edge.media.ffmpeg import binding as ffmpeg
from edge.media.gstreamer import binding as gstreamer
from edge.model.binding import onnx_module
from edge.publish.mqtt import client
from edge.quantize import cluster

ASKED = {
    "amqtt.broker": (broker._import_amqtt, "amqtt", "pip install"),
    "av": (ffmpeg.load, "PyAV", "pip install"),
    "cv2": (images._load, "OpenCV", "pip install"),
    "distributed": (cluster._dask, "Dask", "pip install"),
    "gi": (gstreamer._load.__wrapped__, "GStreamer", "apt"),
    "onnx": (onnx_module, "onnx", "pip install"),
    "openvino": (openvino.import_openvino, "OpenVINO", "pip install"),
    "paho.mqtt.client": (client._import_paho, "paho-mqtt", "pip install"),
}


@pytest.mark.parametrize("module", ASKED)
def test_a_library_that_is_not_there_is_named_with_what_to_do(module, monkeypatch):
    ask, name, todo = ASKED[module]
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails then

    with pytest.raises(MissingDependencyError) as raised:
        ask()

    assert name in raised.value.problem
    assert todo in (raised.value.hint or "")
