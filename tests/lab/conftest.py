"""Virtual devices for tests: the whole lab under EDGE_REQUIRE_LAB=1, one story under EDGE_LAB_STORY=1.

Where no device can run, the lab fails if it is required, and is skipped by name if not.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge.bundle.folder import Bundle
from tests.lab import releases
from tests.lab.able import why_not
from tests.lab.device import VirtualDevice, push_key
from tests.lab.image import base_image, image_path, is_machine, why_no_packages
from tests.lab.provisioning import have_patience, provision
from tests.lab.site import Site, open_site
from tests.support.ports import free_port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A whole lab takes half an hour and is asked for; one story runs wherever its image is there, or may be made."""
    if _is("EDGE_REQUIRE_LAB") or "lab" not in getattr(item, "fixturenames", ()):
        return
    if item.get_closest_marker("story") is None:
        pytest.skip("devices are booted when asked for; run: make lab")
    if not _is("EDGE_LAB_STORY") and not image_path().is_dir():
        pytest.skip("the image of a device has not been made yet; run: make lab")


@pytest.fixture(scope="session")
def lab() -> None:
    """Virtual devices can run, and their image is there."""
    why = why_not() or (None if image_path().is_dir() else why_no_packages())
    if why is None:
        base_image()
    elif _is("EDGE_REQUIRE_LAB"):
        pytest.fail(f"no virtual device: {why}")
    else:
        pytest.skip(f"no virtual device: {why}")


def _is(variable: str) -> bool:
    return os.environ.get(variable) == "1"


@pytest.fixture
def make_device(lab: None) -> Iterator[Callable[..., VirtualDevice]]:
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
        if is_machine():
            have_patience(first)
        yield first.freeze()


@pytest.fixture
def provisioned(make_device: Callable[..., VirtualDevice], provisioned_layer: Path) -> VirtualDevice:
    """A device that has just been provisioned; the lab's push key may push and sign."""
    return make_device(layers=[provisioned_layer])


@dataclass(frozen=True)
class Shop:
    """What the stories push: `first` and `second`, which has another table only; `signer` makes others of them."""

    first: Bundle
    second: Bundle
    signer: releases.Signer
    cameras: Path
    port: int


@pytest.fixture(scope="session")
def shop(lab: None, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Two bundles made as a person makes them, then signed anew with trials of seconds."""
    folder, key, port = tmp_path_factory.mktemp("shop"), push_key(), free_port()
    cameras = releases.draw_cameras(folder / "cameras")
    signer = releases.Signer(key, folder / "bundles")
    made = []
    for name in ("first", "second"):
        pipeline = releases.write_pipeline(folder / name, cameras, port=port)
        if name == "second":
            releases.another_table(pipeline.parent / releases.TABLE.name)
        made.append(signer.variant(releases.bundle(pipeline, cameras / "golden/images", folder / "made", key)))
    return Shop(made[0], made[1], signer, cameras, port)


@pytest.fixture
def large(shop: Shop) -> Bundle:
    """A release that no device has seen, and that takes a moment to send: a transfer can be hit in the middle."""
    return shop.signer.variant(shop.first, health=releases.QUICK, more={"clips/large.bin": os.urandom(24 << 20)})


@pytest.fixture(scope="session")
def retrained(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A release like the first, with another model and the table calibrated for it."""
    folder = tmp_path_factory.mktemp("retrained")
    pipeline = releases.write_pipeline(folder / "shop", shop.cameras, port=shop.port)
    releases.retrained(pipeline.parent)
    return shop.signer.variant(releases.bundle(pipeline, shop.cameras / "golden/images", folder / "made", push_key()))


@pytest.fixture(scope="session")
def served_layers(
    shop: Shop, provisioned_layer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Path]]:
    """The state of a device that has been pushed its first release, and serves it at its next boot."""
    with open_site(tmp_path_factory.mktemp("first"), port=shop.port, layers=[provisioned_layer]) as site:
        said = site.push(shop.first)
        assert said.code == 0, f"{said.documents}{said.told}{site.journal()}"
        yield [site.device.freeze(), provisioned_layer]


@pytest.fixture(scope="module")
def site(shop: Shop, served_layers: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A device that serves the first release; the stories of a module go on where the one before ended."""
    with open_site(tmp_path_factory.mktemp("site"), port=shop.port, layers=served_layers) as opened:
        opened.wait_serving(shop.first.manifest.release)
        yield opened


@pytest.fixture(scope="session")
def figures() -> Iterator[dict[str, str]]:
    """What the stories measure; printed at the end, for docs/push.md."""
    measured: dict[str, str] = {}
    yield measured
    for name, value in measured.items():
        print(f"\nlab: {name}: {value}")
