"""A real mosquitto for tests, and who listens to it: plain paho, which shares no code with ours, and `listen`."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.config.schema import MqttConfig
from edge.deploy.listen import ListenOptions, listen
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.promise import Findings, findings
from tests.support.wait import wait_until


class Mosquitto:
    """Started by `start` or `with`; `options` are further lines of its configuration."""

    def __init__(
        self,
        directory: Path,
        *,
        options: tuple[str, ...] = (),
        tls: Certificates | None = None,
        users: dict[str, str] | None = None,
        is_persistent: bool = False,
        host: str = "127.0.0.1",
        port: int | None = None,
        is_verbose: bool = True,
    ) -> None:
        self.directory = directory
        self.host, self.port = host, port or free_port()
        self._process: subprocess.Popen | None = None
        self._verbosity = ["-v"] if is_verbose else []
        directory.mkdir(parents=True, exist_ok=True)
        lines = [f"listener {self.port} {self.host}", "user root", "max_queued_messages 100000", *options]
        if tls is not None:
            lines += [f"cafile {tls.ca}", f"certfile {tls.certificate}", f"keyfile {tls.key}"]
        if users is None:
            lines.append("allow_anonymous true")
        else:
            lines += ["allow_anonymous false", f"password_file {self._password_file(users)}"]
        if is_persistent:
            lines += ["persistence true", f"persistence_location {directory}/"]
        self._config = directory / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")

    def _password_file(self, users: dict[str, str]) -> Path:
        path = self.directory / "passwords"
        path.touch(mode=0o600)
        for name, password in users.items():
            subprocess.run(["mosquitto_passwd", "-b", str(path), name, password], check=True, capture_output=True)
        return path

    def start(self) -> Mosquitto:
        log = (self.directory / "mosquitto.log").open("ab")
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config), *self._verbosity], stdout=log, stderr=log
        )
        log.close()
        wait_until(self._is_listening, what=f"mosquitto listens; see {self.directory}/mosquitto.log")
        return self

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self) -> None:
        """SIGTERM: it keeps what is persistent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, pause_s: float = 0.0) -> None:
        self.stop()
        time.sleep(pause_s)
        self.start()

    def save(self) -> None:
        """Write down now what is persistent, the sessions of subscribers too: a kill does not take them then."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.directory / "mosquitto.log").read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(60)
        self._process = None

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


class Collector:
    """Collects everything below `#`, over reconnects, with a session that the broker keeps."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        self._is_subscribed = False
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"collector-{id(self)}", protocol=mqtt.MQTTv5
        )
        self._client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _client, _data, message: self.messages.append(message)
        self._client.reconnect_delay_set(0.05, 0.2)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self._client.connect(host, port, clean_start=False, properties=properties)
        self._client.loop_start()
        wait_until(lambda: self._is_subscribed, what="collector subscribed")

    def _on_subscribe(self, *_: object) -> None:
        self._is_subscribed = True

    def payloads(self, ending: str | tuple[str, ...]) -> list[dict]:
        """Return the parsed payloads of all topics that end so (or in one of these ways), in order of arrival."""
        return [json.loads(m.payload) for m in list(self.messages) if m.payload and m.topic.endswith(ending)]

    def findings(self, *, may_be_open: bool = False) -> Findings:
        """Return what all that came says of the promise; `may_be_open` as for `findings`."""
        came = [(message.topic, message.payload) for message in list(self.messages)]
        return findings(came, may_be_open=may_be_open)

    def numbers(self) -> dict[str, list[int]]:
        """Return the detections' numbers by stream, live and late ones, in order of arrival, with duplicates."""
        found: dict[str, list[int]] = defaultdict(list)
        for payload in self.payloads(("/detections", "/replay")):
            found[payload["stream"]].append(payload["seq"])
        return found

    def declared(self) -> dict[str, set[int]]:
        """Return the numbers that gap messages name, by stream."""
        found: dict[str, set[int]] = defaultdict(set)
        for gap in self.payloads("/gaps"):
            found[gap["stream"]] |= set(range(gap["from"], gap["to"] + 1))
        return found

    def undeclared(self, stream: str, last: int) -> set[int]:
        """Return which of 1 to `last` neither came nor were declared."""
        return set(range(1, last + 1)) - set(self.numbers()[stream]) - self.declared()[stream]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


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
