"""`listen` in a thread of the test, at a broker of this machine."""

import io
import threading
from collections.abc import Callable
from typing import Any

from edge.config.schema import MqttConfig
from edge.deploy.listen import ListenOptions, listen
from tests.support.wait import wait_until


def config(port: int, **keys: Any) -> MqttConfig:
    """Return what leads to a broker of this machine, at site `north`."""
    return MqttConfig(host="127.0.0.1", port=port, site="north", tls=False, **keys)


def listened(broker: Any, act: Callable[[], object], **options: Any) -> tuple[int, list[str]]:
    """Run `listen` in a thread while `act` runs; return its exit code and the lines of its output."""
    out, progress, code = io.StringIO(), io.StringIO(), []
    given = ListenOptions(mqtt=config(broker.port), **options)
    thread = threading.Thread(target=lambda: code.append(listen(given, out, progress=progress)))
    thread.start()
    wait_until(lambda: "listening to" in progress.getvalue(), what="listening")
    act()
    thread.join(60)
    return code[0], out.getvalue().split("\n")[:-1]
