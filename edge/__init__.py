"""edge-deploy: INT8 YOLO on edge devices, proven before it goes live.

Read `edge.errors`, `edge.types` and `edge.protocols` first; every other module speaks in their words.
"""
