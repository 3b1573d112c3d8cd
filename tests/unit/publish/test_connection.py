import select

from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.publish.mqtt.connection import PackedProperties, Waker

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)


@given(st.none() | st.integers(0, 2**32 - 1), st.lists(st.tuples(texts, texts), max_size=8).map(tuple))
def test_packed_properties_are_read_back_by_paho(expiry_s, user):
    read = Properties(PacketTypes.PUBLISH)
    packed = PackedProperties(expiry_s, user).pack()
    _, length = read.unpack(packed)

    assert length == len(packed)
    assert read.ContentType == "application/json"
    assert read.PayloadFormatIndicator == 1
    assert getattr(read, "MessageExpiryInterval", None) == expiry_s
    assert tuple(getattr(read, "UserProperty", ())) == user


def test_a_waker_wakes_until_it_is_cleared_and_never_blocks():
    waker = Waker()
    poller = select.poll()
    poller.register(waker, select.POLLIN)
    for _ in range(100_000):
        waker.wake()
    assert poller.poll(0)
    while poller.poll(0):
        waker.clear()
    waker.wake()
    assert poller.poll(0)
    waker.close()
    waker.wake()
