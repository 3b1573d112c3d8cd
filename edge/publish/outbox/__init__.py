"""Messages that wait for the broker: their order, their bounds, and their places."""
