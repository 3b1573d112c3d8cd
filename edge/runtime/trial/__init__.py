"""A new release on trial: trusted, watched, judged, kept or taken back; and what a start makes whole."""
