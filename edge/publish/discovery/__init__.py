"""What brokers keep of us: streams, and entities of Home Assistant, announced and taken away again."""
