"""Wire messages, their way to the broker, and the side that reads them."""
