"""What makes parts of the product that are not in its source."""
