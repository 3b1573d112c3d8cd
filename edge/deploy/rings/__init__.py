"""Rings of devices: releases promoted, waited for and withdrawn, and the devices' reports."""
