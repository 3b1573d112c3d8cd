"""Messages between the two ends of a push: each request and each answer as a value. Standard library only."""
