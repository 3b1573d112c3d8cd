"""Accuracy of a detector, against labelled images or the float model."""
