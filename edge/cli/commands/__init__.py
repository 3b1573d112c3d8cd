"""Commands, those of one subject in one file: options in, one call down, results out."""
