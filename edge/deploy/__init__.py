"""The workstation composition: inspect, evaluate, listen."""
