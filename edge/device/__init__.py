"""The device's own state: releases, the one switch, and how both survive a power cut. Standard library only."""
