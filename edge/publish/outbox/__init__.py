"""What waits for the broker: its order, its bounds, and where it lies meanwhile."""
