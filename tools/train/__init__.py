"""Training of the demo model: needs torch, and no other part of the project imports this."""
