"""What certificates of servers are checked by: brokers, registries, cameras."""

from __future__ import annotations

import ssl

__all__ = ["client_context"]


def client_context(*, has_system_cas: bool) -> ssl.SSLContext:
    """Return a context that checks certificate and host name, by TLS 1.2 or later, alike under each Python.

    Python's own default asks from 3.13 on for extensions that the authority of a farm or a shop, made by `openssl req`
    or a camera, does not have.

    Args:
        has_system_cas: take the authorities that the system trusts.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if has_system_cas:
        context.load_default_certs()
    return context
