"""Engines built on this device: asked for, built by a user of their own, proven, taken over."""
