"""Status page, metrics and pictures of a run; nothing of it is made unless it is asked for."""
