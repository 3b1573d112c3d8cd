"""ONNX Runtime as a kind of engine; nothing is loaded here."""
