"""A virtual device: Debian with systemd as PID 1, sshd and sudo, on a network of its own without a way out."""
