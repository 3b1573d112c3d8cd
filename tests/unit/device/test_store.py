"""Blobs on a real disk."""

import errno
import hashlib
import os

import pytest

from edge.device.durable import Durable, Files
from edge.device.layout import Layout
from edge.device.releases import Store
from edge.errors import DeployError
from tests.support.cut_files import CutFiles
from tests.support.faults import FaultyFiles
from tests.support.pushes import device_over
from tests.support.raised import code_of
from tests.support.scenarios import BARE

CONTENT = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path)


@pytest.fixture
def store(layout):
    return Store(layout, Durable())


def send(store, *, start=0, stop=None, content=CONTENT):
    store.write(SHA256, start, content[start:stop])


def test_a_blob_arrives_in_pieces_and_is_read_only(store, layout):
    assert store.missing({SHA256: len(CONTENT)}) == {SHA256: 0}
    assert store.begin(SHA256, len(CONTENT)) == 0
    send(store, stop=1000)
    send(store, start=1000)
    store.finish(SHA256, len(CONTENT))
    assert layout.blob(SHA256).read_bytes() == CONTENT
    assert layout.blob(SHA256).stat().st_mode & 0o777 == 0o440
    assert store.missing({SHA256: len(CONTENT)}) == {}
    assert store.verify(SHA256)
    assert os.listdir(layout.incoming) == []


def test_the_space_of_a_blob_is_reserved_before_its_bytes_flow(store, layout):
    store.begin(SHA256, len(CONTENT))
    status = layout.partial(SHA256).stat()
    assert status.st_size == 0
    assert status.st_blocks * 512 >= len(CONTENT)


def test_a_broken_transfer_goes_on_where_it_stopped(store, layout):
    store.begin(SHA256, len(CONTENT))
    send(store, stop=777_777)
    again = Store(layout, Durable())
    assert again.missing({SHA256: len(CONTENT)}) == {SHA256: 777_777}
    assert again.begin(SHA256, len(CONTENT)) == 777_777
    send(again, start=777_777)
    again.finish(SHA256, len(CONTENT))
    assert again.verify(SHA256)


def test_bytes_that_do_not_follow_are_refused(store):
    store.begin(SHA256, len(CONTENT))
    with pytest.raises(DeployError, match="expected bytes from offset 0, got offset 5") as failure:
        send(store, start=5)
    assert failure.value.code == "transfer.offset"


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"?", CONTENT[:-1]], ids=["altered", "short"])
def test_a_blob_that_is_not_what_its_name_says_starts_again_at_zero(store, layout, wrong):
    store.begin(SHA256, len(CONTENT))
    send(store, content=wrong)
    assert code_of(store.finish, SHA256, len(CONTENT)) == "transfer.hash"
    assert not store.has(SHA256)
    assert store.begin(SHA256, len(CONTENT)) == 0


def test_a_partial_file_that_is_longer_than_the_blob_starts_again_at_zero(store, layout):
    layout.incoming.mkdir(parents=True)
    layout.partial(SHA256).write_bytes(CONTENT + b"more")
    assert store.missing({SHA256: len(CONTENT)}) == {SHA256: 0}
    assert store.begin(SHA256, len(CONTENT)) == 0
    assert layout.partial(SHA256).stat().st_size == 0


def test_f5_after_a_sync_that_failed_the_partial_file_is_no_longer_trusted(layout):
    store = Store(layout, Durable(FaultyFiles(Files(), at=0, number=errno.EIO, which={"sync"})))
    store.begin(SHA256, len(CONTENT))
    send(store)
    assert code_of(store.finish, SHA256, len(CONTENT)) == "device.disk.io"
    assert store.missing({SHA256: len(CONTENT)}) == {SHA256: 0}


def test_f17_a_blob_that_came_whole_and_found_no_folder_goes_on_once_there_is_space(layout):
    full = FaultyFiles(Files(), at=1, number=errno.ENOSPC, which={"make_dir"})  # the first one is for its arrival
    layout.var.mkdir(parents=True)
    store = Store(layout, Durable(full))
    store.begin(SHA256, len(CONTENT))
    send(store)
    assert code_of(store.finish, SHA256, len(CONTENT)) == "device.disk.space"
    assert layout.partial(SHA256).stat().st_mode & 0o777 == 0o600, "whoever goes on has to be able to write"
    assert store.begin(SHA256, len(CONTENT)) == len(CONTENT)
    store.finish(SHA256, len(CONTENT))
    assert store.verify(SHA256)


def test_f17_a_reservation_that_fails_leaves_nothing(layout):
    store = Store(layout, Durable(FaultyFiles(Files(), at=0, number=errno.ENOSPC, which={"allocate"})))
    assert code_of(store.begin, SHA256, len(CONTENT)) == "device.disk.space"
    assert os.listdir(layout.incoming) == []


def test_f17_more_than_the_disk_has_is_refused_before_a_byte_flows(store, layout):
    assert code_of(store.begin, SHA256, 2**50) == "device.disk.space"
    assert os.listdir(layout.incoming) == []


def test_f15_a_flipped_bit_is_found_and_the_blob_is_asked_for_again(store, layout):
    store.begin(SHA256, len(CONTENT))
    send(store)
    store.finish(SHA256, len(CONTENT))
    os.chmod(layout.blob(SHA256), 0o644)
    layout.blob(SHA256).write_bytes(b"\1" + CONTENT[1:])
    assert not store.verify(SHA256)
    store.quarantine(SHA256)
    assert store.missing({SHA256: len(CONTENT)}) == {SHA256: 0}
    assert os.listdir(layout.incoming) == [f"{SHA256}.damaged"]


def test_a_blob_that_was_taken_out_stays_out_after_a_cut_and_only_then_is_asked_for_again():
    digest = hashlib.sha256(b"content").hexdigest()
    files = CutFiles(BARE)
    device = device_over(files)
    blob = device.layout.blob(digest)
    device.durable.make_dirs(blob.parent)
    device.durable.put(blob, b"flipped")

    device.store.quarantine(digest)

    assert not device.store.has(digest)
    assert not any(str(blob) in dict(tree) for tree in files.trees_after_cut())
    assert f"{digest}.damaged" in files.names(device.layout.incoming)


def test_an_empty_blob_is_a_blob(store):
    empty = hashlib.sha256(b"").hexdigest()
    assert store.begin(empty, 0) == 0
    store.finish(empty, 0)
    assert store.verify(empty)


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "\n"])
def test_f16_a_name_that_is_no_digest_never_becomes_a_path(store, name):
    for call in (store.has, store.verify, store.quarantine, lambda one: store.begin(one, 1)):
        assert code_of(call, name) == "request.digest"
