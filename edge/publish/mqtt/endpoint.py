"""Where the broker is and who we are there, by the configuration."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig, TlsConfig
from edge.errors import ConfigError
from edge.reading import open_file
from edge.tls import client_context

__all__ = ["Endpoint", "endpoint_from_config", "no_dots", "topic_root"]

_TLS_PORT = 8883
_PLAIN_PORT = 1883
# Expected in a file, and what to do where it is something else.
_AUTHORITIES = "certificates (PEM)", "name the file of the authority that has signed the broker's certificate"
_CERTIFICATE = "PEM, certificate and key belonging together", "encrypted keys are not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One broker as one client sees it. `tls` is None for plain text."""

    host: str
    port: int
    client_id: str
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    credential: Credential | None = None
    keepalive_s: int = 10
    connect_timeout_s: float = 5.0

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({'TLS' if self.tls else 'plain text'})"


def endpoint_from_config(
    config: MqttConfig, *, client_id: str, credential: Credential | None = None, base_dir: Path | None = None
) -> Endpoint:
    """Return the endpoint that `config` describes; its file names are relative to `base_dir`.

    Raises `ConfigError` when a TLS file cannot be used, or a password is missing.
    """
    if config.credential is not None and credential is None:
        raise ConfigError(
            f"mqtt.credential: expected a user name and a password for {config.credential!r}, found none",
            hint="provide the secret under that name, or remove the key",
        )
    tls = _tls_context(config.tls, base_dir or Path())
    return Endpoint(
        host=config.host,
        port=config.port or (_PLAIN_PORT if tls is None else _TLS_PORT),
        client_id=config.client_id or client_id,
        tls=tls,
        credential=credential,
        keepalive_s=config.keepalive_s,
    )


def topic_root(config: MqttConfig) -> str:
    """Return the levels above the device, e.g. `edge/v1/north`."""
    return f"{config.prefix}/{config.site}"


def no_dots(topic: str) -> str:
    """Return what else may be wrong where a broker refuses a topic, to go behind a hint."""
    return "; a NATS server takes no dot in topics: give mqtt.prefix another name" if "." in topic else ""


def _tls_context(config: TlsConfig | bool, base_dir: Path) -> ssl.SSLContext | None:
    """Return a context that checks certificate and host name; None when plain text was asked for."""
    if config is False:
        return None
    files = TlsConfig() if config is True else config
    # Only the authority that is named: with the system's left in, any public certificate for the name would do.
    context = client_context(has_system_cas=files.ca is None)
    if files.ca is not None:
        _load("ca", base_dir / files.ca, lambda path: context.load_verify_locations(cafile=path), *_AUTHORITIES)
    _load_client_certificate(context, files, base_dir)
    return context


def _load_client_certificate(context: ssl.SSLContext, files: TlsConfig, base_dir: Path) -> None:
    if files.certificate is None:
        if files.key is not None:
            raise ConfigError("mqtt.tls.key: a key needs its certificate", hint="set mqtt.tls.certificate too")
        return
    key = None if files.key is None else base_dir / files.key
    # A password callback that gives nothing: OpenSSL would otherwise ask on the terminal and hang a service.
    _load(
        "certificate",
        base_dir / files.certificate,
        lambda path: context.load_cert_chain(path, key, password=lambda: b""),
        *_CERTIFICATE,
    )


def _load(key: str, path: Path, load: Callable[[Path], None], expected: str, hint: str) -> None:
    try:
        os.close(open_file(path, follows_links=True))  # OpenSSL would wait for a pipe
        load(path)
    except ssl.SSLError as error:
        raise ConfigError(f"mqtt.tls.{key}: {path}: expected {expected}: {error.reason}", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"mqtt.tls.{key}: {path}: {error.strerror}", hint="the file has to be readable") from error
