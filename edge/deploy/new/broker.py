"""The broker as it was typed, and whether it takes us in."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edge.config.credentials import Credential
from edge.config.load import mqtt_from_options
from edge.config.schema import MqttConfig
from edge.errors import ConfigError
from edge.publish.mqtt.client import connect
from edge.publish.mqtt.endpoint import endpoint_from_config
from edge.publish.mqtt.trouble import BrokerError, ProtocolChoice, Trouble

__all__ = ["broker_from_text", "try_broker", "wants_login"]

_TLS_OF = {"mqtts": True, "mqtt": False}  # plain text has to be asked for
_ATTEMPTS = 2


def broker_from_text(text: str, *, site: str | None, ca: str | None) -> tuple[MqttConfig, Credential | None]:
    """Return what `HOST[:PORT]`, `mqtts://...` (the same) or `mqtt://...` (plain text) means, and its login if any.

    Raises `ConfigError`, without the text: it may hold a password.
    """
    scheme, separator, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    is_known = not separator or scheme in _TLS_OF
    if not host or port == 0 or not is_known or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            "--broker: expected HOST, HOST:PORT, mqtts://HOST[:PORT], or mqtt://HOST[:PORT] for plain text",
            hint="in a password write @ as %40, / as %2F, ? as %3F, # as %23",
        )
    tls = _TLS_OF.get(scheme, True)
    if ca is not None and not tls:
        raise ConfigError("--ca: is of no use without TLS", hint="write mqtts://, or leave it out")
    config = mqtt_from_options({"host": host, "port": port, "site": site, "tls": tls if ca is None else {"ca": ca}})
    user = parts.username
    return config, None if user is None else Credential(user=unquote(user), password=unquote(parts.password or ""))


def try_broker(
    config: MqttConfig,
    *,
    login: Credential | None,
    base_dir: Path,
    within_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Connect without a session, disconnect, and return the address; raise ConfigError (TLS files), PublishError."""
    name = f"edge-new-{secrets.token_hex(4)}"
    endpoint = endpoint_from_config(config, client_id=name, credential=login, base_dir=base_dir)
    endpoint = dataclasses.replace(endpoint, connect_timeout_s=within_s / _ATTEMPTS)
    protocol = ProtocolChoice(config.protocol)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            connect(endpoint, version=protocol.version).close()
            return str(endpoint)
        except BrokerError as error:
            is_last = attempt == _ATTEMPTS or is_stopped()
            if is_last or error.kind not in (Trouble.VERSION, Trouble.CLOSED, Trouble.UNANSWERED):
                raise BrokerError(error.kind, f"{endpoint}: {error.problem}", hint=error.hint) from error
            protocol.failed(error.kind, patience=1)
    raise AssertionError("every attempt returns or raises")


def wants_login(problem: object) -> bool:
    """Return whether the broker has refused us, which a login may change."""
    return isinstance(problem, BrokerError) and problem.kind is Trouble.REFUSED
