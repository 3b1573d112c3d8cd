"""What the two ends of a push say to each other: each request and each answer as a value. Standard library only."""
