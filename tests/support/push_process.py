"""The real client as a process of its own, which can be killed: `push_process.py SPEC`, a JSON object.

`device` is the DeviceRoot's directory, `bundle` a path, `config` an ssh_config (none: without SSH), `die_at` the phase
at whose beginning it kills itself.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from edge.bundle.folder import open_bundle
from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.transport.channel import ChildChannel
from edge.transport.ssh import SshAddress, SshChannel

if __name__ == "__main__":
    spec = json.loads(sys.argv[1])

    def connect():
        if spec.get("config"):
            return SshChannel(SshAddress(host="device", config=Path(spec["config"])))
        return ChildChannel([sys.executable, str(Path(__file__).with_name("agent_process.py")), spec["root"]])

    def on_event(event):
        if (event.phase, event.event) == (spec.get("die_at"), "begin"):
            os.kill(os.getpid(), signal.SIGKILL)

    outcome = deliver(
        open_bundle(Path(spec["bundle"])),
        connect,
        target="gate-01",
        options=DeliveryOptions(who="tester"),
        on_event=on_event,
        stop=threading.Event(),
    )
    sys.exit(outcome.exit_code)
