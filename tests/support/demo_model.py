"""The model of the demo and its calibration table, as they are shipped."""

from pathlib import Path

_ROOT = Path(__file__).parents[2]
MODEL = _ROOT / "edge/demo/model/traffic.onnx"
TABLE = _ROOT / "calib_cache/traffic.calib.json"
