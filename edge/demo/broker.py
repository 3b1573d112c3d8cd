"""An MQTT broker inside this process, for the demo: loopback only, no passwords, nothing kept. MQTT v3.1.1."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import warnings
from types import TracebackType
from typing import Any

from edge.config.schema import MqttConfig
from edge.errors import MissingDependencyError, PublishError

__all__ = ["EmbeddedBroker"]

_START_TIMEOUT_S = 10.0
_GOODBYE_S = 1.0
_HOST = "127.0.0.1"
_log = logging.getLogger(__name__)
# amqtt tells of each client that leaves without goodbye as of an error.
_LOGGERS = ("amqtt", "transitions")


class EmbeddedBroker:
    """A broker in a background thread, from `with` to the end of its block.
    Raises `MissingDependencyError` when amqtt is not installed; `PublishError` when no broker could be started.
    """

    def __init__(self) -> None:
        self.host = _HOST
        self.port = 0
        self._module = _import_amqtt()
        self._is_up = threading.Event()
        self._problem: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._levels: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="demo-broker", daemon=True)

    def __enter__(self) -> EmbeddedBroker:
        for name in _LOGGERS:
            self._levels[name] = logging.getLogger(name).level
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._thread.start()
        if not self._is_up.wait(_START_TIMEOUT_S) or self._problem is not None:
            self._quiet_end()
            raise PublishError(
                f"the demo's broker did not start: {self._problem or 'no answer in time'}",
                hint="use another broker: mqtt.host",
            )
        return self

    def config(self) -> MqttConfig:
        """Return how to reach it; amqtt is silent when it is asked for MQTT v5, so that is not tried."""
        return MqttConfig(host=self.host, port=self.port, site="demo", tls=False, protocol="v3.1.1")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._quiet_end()

    def _quiet_end(self) -> None:
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        self._thread.join(_START_TIMEOUT_S)
        _close_what_was_left()
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # the border of the thread: __enter__ tells it
            self._problem = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda loop, context: _log.debug("broker: %s", context["message"]))
        self._stop = asyncio.Event()
        self.port = _free_port()
        broker = self._module.Broker(_config(self.port))
        await broker.start()
        self._is_up.set()
        await self._stop.wait()
        await broker.shutdown()
        await _finish_others()


async def _finish_others() -> None:
    """Let the handlers of clients end and close their sockets; amqtt does not wait for them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_GOODBYE_S)
    for _ in range(3):  # a closed transport lets its socket go in a later turn of the loop
        await asyncio.sleep(0)


def _close_what_was_left() -> None:
    """Close sockets that amqtt forgot when a client left in the same moment; nothing else holds them any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _config(port: int) -> dict[str, Any]:
    return {
        "listeners": {"default": {"type": "tcp", "bind": f"{_HOST}:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _import_amqtt() -> Any:
    try:
        import amqtt.broker
    except ImportError as error:
        raise MissingDependencyError(
            "the demo's broker needs amqtt, which is not installed",
            hint="run: pip install 'edge-deploy[demo]', or name a broker of your own",
        ) from error
    return amqtt.broker
