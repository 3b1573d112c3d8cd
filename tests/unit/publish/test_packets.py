import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.publish.mqtt.stream import (
    Acknowledged,
    acknowledged_from,
    packed_properties,
    packet_bytes,
    publish_packet,
)
from tests.support.mosquitto import PUBACK, PUBLISH, Packet, packet, parse_publish

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=90)


@given(st.none() | st.integers(0, 2**32 - 1), st.lists(st.tuples(texts, texts), max_size=8).map(tuple))
def test_packed_properties_are_read_back_by_paho(expiry_s, user):
    read = Properties(PacketTypes.PUBLISH)
    packed = packed_properties(expiry_s, user)
    _, length = read.unpack(packed)

    assert length == len(packed)
    assert read.ContentType == "application/json"
    assert read.PayloadFormatIndicator == 1
    assert getattr(read, "MessageExpiryInterval", None) == expiry_s
    assert tuple(getattr(read, "UserProperty", ())) == user


@given(topics, st.sampled_from([0, 1, 127, 128, 16_383, 16_384]), st.none() | st.integers(1, 65_535), st.booleans())
@pytest.mark.parametrize("version", [4, 5])
def test_a_publish_is_read_back_by_the_strict_broker(version, topic, payload_bytes, packet_id, is_retained):
    properties = packed_properties(30, (("seq", "1"),)) if version == 5 else b""
    payload = b"x" * payload_bytes
    sent = publish_packet(topic, payload, packet_id=packet_id, is_retained=is_retained, properties=properties)

    assert packet_bytes(sent) == len(sent)
    head = next(at for at in range(1, 5) if sent[at] < 128) + 1
    read = parse_publish(Packet(sent[0] >> 4, sent[0] & 15, sent[head:], sent), version=version)
    assert (read.topic, read.payload, read.is_retained) == (topic, payload, is_retained)
    assert (read.packet_id, read.qos, read.is_duplicate) == (packet_id or 0, int(packet_id is not None), False)


@pytest.mark.parametrize(
    ("body", "is_v5", "told"),
    [
        (b"\x01\x02", False, Acknowledged(0x102, 0)),
        (b"\x01\x02", True, Acknowledged(0x102, 0)),
        (b"\x01\x02\x87", True, Acknowledged(0x102, 0x87)),
        (b"\x01\x02\x95\x00", True, Acknowledged(0x102, 0x95)),
        (b"\x01\x02\x97\xcb\x01\x1f\x00\xc8" + b"r" * 200, True, Acknowledged(0x102, 0x97)),
        (b"\x01\x02\x87", False, None),
        (b"\x01", True, None),
        (b"", True, None),
    ],
)
def test_a_puback_is_read_and_one_that_is_not_well_formed_is_left_to_paho(body, is_v5, told):
    assert acknowledged_from(packet(PUBACK, body), is_v5=is_v5) == told


def test_other_packets_are_no_acknowledgements():
    assert acknowledged_from(packet(PUBLISH, b"\x00\x01a\x00\x01"), is_v5=True) is None
    assert acknowledged_from(packet(PUBACK, b"\x00\x01", flags=2), is_v5=True) is None


@given(st.integers(0, 15), st.binary(max_size=300), st.binary(max_size=5))
def test_the_length_of_a_packet_is_known_as_soon_as_its_head_is_here(kind, body, behind):
    whole = packet(kind, body)

    assert packet_bytes(whole + behind) == len(whole)
    head = len(whole) - len(body)
    assert [packet_bytes(whole[:count]) for count in range(head + 1)] == [None] * head + [len(whole)]


def test_a_length_without_end_is_no_packet_and_all_of_it_is_handed_on():
    assert packet_bytes(b"\x40\xff\xff\xff\xff\xff\xff") == 7
