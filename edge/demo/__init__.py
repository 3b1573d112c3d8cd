"""Synthetic traffic cameras with exact ground truth, and the small detector trained on them."""
