"""Where frames come from: GStreamer, PyAV, still images."""
