"""Virtual devices for tests; where none can run, tests are skipped by name, or fail under EDGE_REQUIRE_LAB=1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.able import why_not
from tests.lab.device import VirtualDevice
from tests.lab.image import base_image, image_path
from tests.lab.provisioning import provision


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def lab() -> None:
    """Virtual devices can run; their image is made only where the lab is required: it takes minutes and a mirror."""
    is_required = os.environ.get("EDGE_REQUIRE_LAB") == "1"
    why = why_not()
    if why is None and not is_required and not image_path().is_dir():
        why = "its image has not been made yet; run: make lab"
    if why is None:
        base_image()
    elif is_required:
        pytest.fail(f"no virtual device: {why}")
    else:
        pytest.skip(f"no virtual device: {why}")


@pytest.fixture
def make_device(lab: None) -> Iterator[Callable[..., VirtualDevice]]:
    """Return a maker of devices that are gone after the test."""
    made: list[VirtualDevice] = []

    def make(**options: Any) -> VirtualDevice:
        made.append(VirtualDevice(**options))
        return made[-1]

    yield make
    for device in made:
        device.remove()


@pytest.fixture
def device(make_device: Callable[..., VirtualDevice]) -> VirtualDevice:
    """A machine that nobody has provisioned."""
    return make_device()


@pytest.fixture(scope="session")
def provisioned_layer(lab: None) -> Iterator[Path]:
    """The state of a device right after `provision`, for `make_device(layers=[...])`."""
    with VirtualDevice() as first:
        done = provision(first)
        assert done.returncode == 0, done.stderr
        yield first.freeze()


@pytest.fixture
def provisioned(make_device: Callable[..., VirtualDevice], provisioned_layer: Path) -> VirtualDevice:
    """A device that has just been provisioned; the lab's push key may push and sign."""
    return make_device(layers=[provisioned_layer])
