"""Frames between a workstation and a device's agent, over OpenSSH or a pipe. Standard library only."""
