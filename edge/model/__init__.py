"""The ONNX file: what it is, and how it is changed without changing what it computes."""
