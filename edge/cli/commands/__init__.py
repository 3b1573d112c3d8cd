"""One file per command: options in, one call down, results out."""
