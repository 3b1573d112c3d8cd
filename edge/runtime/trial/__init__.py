"""A new release on trial: watched, judged, kept or taken back; and what a start makes whole."""
