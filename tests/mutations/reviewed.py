"""Mutants that change nothing that a test could see, each with the reason."""

REVIEWED: dict[str, str] = {
    "edge/device/health.py measure_baseline: step: time.sleep(_STEP_S)": "the same is measured, with a busy core",
    "edge/device/durable.py Durable.append_line: order: self.files.sync(path) <-> self.settle(path)": (
        "a line is promised once both are done; a new file that is empty after a cut reads as none"
    ),
    "edge/device/engines.py Engines.admit: step: self._durable.settle(self._layout.engine(key))": (
        "remove_tree syncs the same folder before it removes anything"
    ),
    "edge/device/engines.py Engines.admit: order: self._durable.settle(self._layout.engine(key)) <-> "
    "self._durable.remove_tree(folder)": "remove_tree syncs the same folder before it removes anything",
    "edge/device/device.py _partials: order: files.remove(path) <-> removed.append(path.name)": (
        "where the first one fails, the list is lost with it"
    ),
    "edge/device/health.py write_health: order: os.fchmod(descriptor, 0o644) <-> file.write(encode_health(health))": (
        "the file has no name that anyone reads before both are done, and fewer may read it before the first"
    ),
    "edge/device/releases.py Releases.stage: order: self._files.write(partial / MANIFEST, manifest) <-> "
    "self._files.write(partial / SIGNATURE, signature)": (
        "both are synced before their folder has a name that anyone reads; without that name they are garbage"
    ),
    "edge/device/releases.py Releases.settle: order: self._settle_blobs(self.blobs(name).values()) <-> "
    "self._durable.settle(folder)": "two syncs: whatever a cut between them leaves, a cut before both may leave",
    "edge/device/releases.py Releases.settle: order: self._durable.settle(self._layout.engine(check_key(key))) <-> "
    "self._durable.settle(folder / ENGINE)": (
        "two syncs: whatever a cut between them leaves, a cut before both may leave"
    ),
    "edge/runtime/agent/session.py ConnectionEnded.__init__: step: super().__init__(str(error))": (
        "an exception keeps what it is made of all the same, and that reads alike"
    ),
    "edge/runtime/agent/watch.py _tail_of: order: giving_up.cancel() <-> process.kill()": (
        "both are done, and the timer does nothing but kill the process, too"
    ),
}
