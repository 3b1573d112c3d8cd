"""Every target of `make fuzz` takes what the product writes, that with mistakes in it, and noise."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS


@st.composite
def spoiled(draw, target):
    """What the product writes, with pieces cut out, doubled, replaced, and words put in."""
    seeds = target.seeds()
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(data)))
        last = draw(st.integers(first, min(len(data), first + 40)))
        other = draw(st.sampled_from(seeds))
        start = draw(st.integers(0, len(other)))
        choices = [
            st.just(b""),
            st.binary(max_size=8),
            st.just(data[first:last] * 2),
            st.just(other[start : start + 40]),
        ]
        data = data[:first] + draw(st.one_of(*choices, *(st.just(word) for word in target.words))) + data[last:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_product_writes_is_read(name):
    for seed in TARGETS[name].seeds():
        TARGETS[name].run(seed)


_LONG = pytest.mark.slow(reason="hundreds of pipeline files")


@pytest.mark.parametrize("name", [pytest.param(one, marks=_LONG) if one == "pipeline" else one for one in TARGETS])
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_what_is_spoiled_is_read_or_refused_in_words(name, data):
    TARGETS[name].run(data.draw(spoiled(TARGETS[name])))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=100)
@given(data=st.binary(max_size=200))
def test_noise_is_read_or_refused_in_words(name, data):
    TARGETS[name].run(data)
