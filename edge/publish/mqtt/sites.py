"""Which devices a broker has heard of, by the states that it keeps: for who has asked for a site that is not there."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.deadline import Deadline
from edge.publish.mqtt.client import connect
from edge.publish.mqtt.connection import Received
from edge.publish.mqtt.endpoint import endpoint_from_config
from edge.publish.mqtt.trouble import BrokerError
from edge.publish.mqtt.version import ProtocolChoice

__all__ = ["devices_by_site"]

_POLL_S = 0.2


def devices_by_site(
    config: MqttConfig, *, credential: Credential | None, base_dir: Path | None, within_s: float
) -> dict[str, list[str]]:
    """Return the devices under the prefix of `config`, by site, sorted; none where the broker does not say.

    Retained states come at once after a subscription, so `within_s` is for the way to the broker.
    """
    config = msgspec.structs.replace(config, client_id=None)
    endpoint = endpoint_from_config(
        config, client_id=f"edge-listen-{secrets.token_hex(4)}", credential=credential, base_dir=base_dir
    )
    found: set[tuple[str, str]] = set()
    try:
        connection = connect(endpoint, version=ProtocolChoice(config.protocol).version)
        connection.subscribe((f"{config.prefix}/+/+/state",))
        deadline = Deadline.after(within_s)
        while not deadline.is_over:
            for event in connection.poll(_POLL_S):
                if isinstance(event, Received) and event.payload:
                    *_, site, device, _ = event.topic.split("/")
                    found.add((site, device))
        connection.close()
    except BrokerError:  # an access list, or a version: it is a hint only
        pass
    sites: dict[str, list[str]] = {}
    for site, device in sorted(found):
        sites.setdefault(site, []).append(device)
    return sites
