"""One release brought to one agent, over any connection, from the first question to the verdict of its trial."""
