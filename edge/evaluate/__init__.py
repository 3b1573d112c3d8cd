"""Accuracy of a detector against labelled images."""
