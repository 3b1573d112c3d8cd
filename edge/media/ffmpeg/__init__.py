"""Streams read through FFmpeg (PyAV), where GStreamer is not installed; and the writer of clips."""
