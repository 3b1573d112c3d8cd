"""The two commands, `edge-deploy` and `edge-runtime`."""
