import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import DeployError
from edge.transport.channel import MAX_BLOB_BYTES, MAX_JSON_BYTES, Blob, Message, encode_frame, read_frame
from tests.support.agent_session import framed
from tests.support.raised import code_of


class EndedError(Exception):
    pass


def _reader(content):
    stream = io.BytesIO(content)

    def read_exactly(count):
        part = stream.read(count)
        if len(part) < count:
            raise EndedError
        return part

    return read_exactly


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_frame_or_a_typed_error(content):
    codes = []
    try:
        assert encode_frame(read_frame(_reader(content)))
    except EndedError:
        pass
    except DeployError as error:
        codes.append(error.code)
    assert codes in ([], ["transfer.protocol"])


@given(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=64))
def test_a_claimed_length_is_never_believed(length, kind, body):
    asked = []
    read = _reader(length.to_bytes(4, "big") + bytes([kind]) + body)

    def read_exactly(count):
        asked.append(count)
        return read(count)

    with contextlib.suppress(EndedError, DeployError):
        read_frame(read_exactly)
    assert max(asked) <= MAX_BLOB_BYTES


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.text(max_size=20), st.dictionaries(st.text(max_size=8).filter(lambda key: key != "verb"), _VALUES, max_size=4)
)
def test_a_message_comes_back_as_it_went(verb, values):
    assert read_frame(_reader(encode_frame(Message(verb, values)))) == Message(verb, values)


@given(st.binary(max_size=2000))
def test_a_blob_comes_back_as_it_went(content):
    assert read_frame(_reader(encode_frame(Blob(content)))) == Blob(content)


@pytest.mark.parametrize(
    "body",
    [
        b"[1]",
        b"{}",
        b'{"verb": 3}',
        b"[" * 100_000,
    ],
    ids=["array", "no verb", "verb of another type", "bomb"],
)
def test_a_body_that_is_no_message_is_refused(body):
    assert code_of(read_frame, _reader(framed(body))) == "transfer.protocol"


def test_a_frame_over_the_limit_is_not_even_encoded():
    with pytest.raises(ValueError, match="at most"):
        encode_frame(Blob(bytes(MAX_BLOB_BYTES + 1)))
    with pytest.raises(ValueError, match="at most"):
        encode_frame(Message("x", {"text": "x" * MAX_JSON_BYTES}))
