"""A process that publishes until it is killed: `... publishing_process PORT RUN EPOCH FILE BYTES [SPOOL]`.

It writes the last number for which `publish` has returned into FILE, which is mapped into memory.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

import msgspec

from edge.config.schema import MqttConfig
from edge.protocols import TopicMessage
from edge.publish.frames import FrameMessage
from edge.publish.mqtt.publisher import MqttPublisher
from edge.publish.mqtt.trouble import BrokerBackoff
from edge.publish.outbox.bounds import Bounds
from edge.publish.outbox.recovery import SpoolPlace
from tests.support.wire_messages import birth, detections, found, frame_result


def main(port: str, run: str, epoch: str, numbers: str, max_bytes: str, spool: str = "") -> None:
    last = mmap.mmap(os.open(numbers, os.O_RDWR), 8)
    publisher = MqttPublisher(
        MqttConfig(host="127.0.0.1", port=int(port), site="north", tls=False),
        info=msgspec.structs.replace(birth(), epoch=int(epoch)),
        run_path=Path(run),
        spool=SpoolPlace(Path(spool), Bounds(free_bytes=0)) if spool else None,
        max_bytes=int(max_bytes),
        backoff=BrokerBackoff(min_s=0.02, max_s=0.1),
    )
    print("ready", flush=True)
    for seq in range(1, 1 << 30):
        publisher.publish(_message(seq, int(epoch)))
        struct.pack_into("<Q", last, 0, seq)
        time.sleep(0.0005)


def _message(seq: int, epoch: int) -> TopicMessage:
    """Return a frame as the pipeline publishes it, or a message that is encoded already."""
    if seq % 3 == 0:
        return detections(seq, epoch=epoch, count=seq % 20)
    result = frame_result(found(*[(seq % 97 + n, 2.5, 300, 400.25) for n in range(seq % 20)]))
    return FrameMessage(result, info=msgspec.structs.replace(birth().run_info, epoch=epoch), seq=seq)


if __name__ == "__main__":
    main(*sys.argv[1:])
