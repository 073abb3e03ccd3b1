"""What a kill left in the ring, moved to the log without a broker."""

import shutil

import pytest
from click.testing import CliRunner

from rmq.cli.store.command import store_command
from rmq.protocol.message import Message
from rmq.tools.settle import recover_store
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.tools.conftest import HOST

RING = {"tail_ring_bytes": 1 << 20, "max_message_size": 60_000}


@pytest.fixture
def killed(open_store, tmp_path):
    """Root of a store as a kill leaves it: part of a record is in the files."""
    store = open_store(**RING)
    for n in range(100):
        store.writes.put(Message("Topic", n % 3, b"%d" % n * 200, 0, 0, 1, HOST))
        if n == 50:
            store.log.writer.write_out()
    image = tmp_path / "image"
    shutil.copytree(store.directory.root, image)
    return image


def test_verify_names_the_ring_and_finds_no_damage(killed):
    verdict = Verification(StoreFiles(killed)).run()
    assert not verdict.damages
    assert verdict.record_count == 51
    assert any("rmq store settle" in note for note in verdict.notes)


def test_a_settled_store_is_as_after_a_stop(killed, open_store):
    """No queue file tells their size yet: it comes from `broker.conf`."""
    lines = recover_store(StoreFiles(killed), {"mappedFileSizeConsumeQueue": "2000"})
    assert any("bytes of the log were still in the ring" in line for line in lines)
    assert not (killed / "ring").exists()
    assert not (killed / "abort").exists()
    verdict = Verification(StoreFiles(killed)).run()
    assert (verdict.record_count, verdict.damages, verdict.notes) == (100, [], [])
    assert recover_store(StoreFiles(killed), {}) == [
        "nothing to settle: the last shutdown was clean"
    ]
    assert open_store(killed).reads.max_offset("Topic", 0) == 34


def test_the_command_takes_the_configuration_of_a_broker(killed, tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("rmq.tailRingBytes=67108864\n")
    run = CliRunner().invoke(store_command, ["settle", "-c", str(path), str(killed)])
    assert run.exit_code == 0, run.output
    assert "in the state after a clean shutdown" in run.output
    assert not (killed / "ring").exists()
