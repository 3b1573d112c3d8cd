"""The CPU engine: OpenVINO, on x86-64 and aarch64."""

from edge.engine.openvino.activations import OpenVinoActivations
from edge.engine.openvino.engine import OpenVinoEngine, OpenVinoOptions

__all__ = ["OpenVinoActivations", "OpenVinoEngine", "OpenVinoOptions"]
