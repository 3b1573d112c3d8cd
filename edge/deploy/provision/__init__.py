"""First installation of a device over its administrator's ssh; one list of steps is planned, applied, undone."""
