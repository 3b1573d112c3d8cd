"""Program that provision sends to a device: it runs there once, as root, with nothing of ours but this folder."""
