"""An MQTT broker inside this process, for the demo: loopback only, no passwords, nothing kept. MQTT v3.1.1."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from edge.config.schema import MqttConfig
from edge.errors import MissingDependencyError, PublishError

__all__ = ["embedded_broker"]

_START_TIMEOUT_S = 10.0
_GOODBYE_S = 1.0
_HOST = "127.0.0.1"
_log = logging.getLogger(__name__)
# amqtt tells of each client that leaves without goodbye as of an error.
_LOGGERS = ("amqtt", "transitions")


@contextlib.contextmanager
def embedded_broker() -> Iterator[MqttConfig]:
    """Run a broker in a background thread within the block, and give how to reach it.
    Raises `MissingDependencyError` when amqtt is not installed; `PublishError` when no broker could be started.
    """
    module, port = _import_amqtt(), _free_port()
    is_up, stop = threading.Event(), threading.Event()
    problems: list[Exception] = []

    def run() -> None:
        try:
            asyncio.run(_serve(module, port, is_up, stop))
        except Exception as error:  # the border of the thread: the block tells it
            problems.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=run, name="demo-broker", daemon=True)
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    thread.start()
    try:
        if not is_up.wait(_START_TIMEOUT_S) or problems:
            problem = problems[0] if problems else "no answer in time"
            raise PublishError(f"the demo's broker did not start: {problem}", hint="run it again")
        # amqtt is silent when it is asked for MQTT v5, so that is not tried.
        yield MqttConfig(host=_HOST, port=port, site="demo", tls=False, protocol="v3.1.1")
    finally:
        stop.set()
        thread.join(_START_TIMEOUT_S)
        _close_what_was_left()
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


async def _serve(module: Any, port: int, is_up: threading.Event, stop: threading.Event) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: _log.debug("broker: %s", context["message"]))
    broker = module.Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{_HOST}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    is_up.set()
    await asyncio.to_thread(stop.wait)
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
            hint="run: pip install 'edge-deploy[demo]'",
        ) from error
    return amqtt.broker
