"""Streams read through GStreamer: one pipeline per stream, put together from the texts in pipelines/launch."""
