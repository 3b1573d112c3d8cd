import msgspec

from edge.publish.device_messages import StateMessage
from edge.publish.mqtt.poison import PoisonMessages
from edge.publish.outbox.entry import entry_from_message
from tests.support.wire_messages import detections


def test_a_state_worded_anew_for_each_connection_is_the_same_head():
    # Its acknowledgement is lost with the connection that something behind it has broken.
    poison = PoisonMessages()
    state = StateMessage(device="gate-01", state="online", since=None)
    behind = [(entry_from_message(detections(seq)), 700) for seq in (1, 2)]
    for session in (1, 2):
        worded = entry_from_message(msgspec.structs.replace(state, session=session))
        poison.lost([(worded, 300), *behind], has_taken=True)

    assert poison.is_careful
