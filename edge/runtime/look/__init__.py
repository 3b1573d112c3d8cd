"""What people and monitoring see of a run: figures, state, pictures; nothing of it is made while nobody looks."""
