"""A publisher that keeps what it is given."""


class Kept:
    def __init__(self):
        self.messages = []

    def publish(self, message):
        self.messages.append(message)

    def of(self, kind):
        return [message for message in self.messages if isinstance(message, kind)]

    def states(self):
        """What was told of the device as a whole, and why."""
        return [(one.state, one.reason) for one in self.messages if one.topic == "state"]
