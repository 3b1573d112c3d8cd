"""The device composition: streams, batches, inference, results, as one running service."""
