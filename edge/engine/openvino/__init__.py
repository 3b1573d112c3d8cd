"""The CPU engine: OpenVINO, on x86-64 and aarch64."""

from edge.engine.openvino.activations import OpenVinoActivations
from edge.engine.openvino.engine import OpenVinoEngine, OpenVinoOptions
from edge.engine.openvino.profile import LayerProfiler

__all__ = ["LayerProfiler", "OpenVinoActivations", "OpenVinoEngine", "OpenVinoOptions"]
