"""Bits that flip on the disk: detected by verify and by a start after a crash.

Covered: size, magic, body CRC, own offset, body and the lengths inside a record; every
field of queue entries. Not covered by the format's checksum, and so not detected:
properties, hosts, times, flags and the topic's letters.
"""

import shutil

import pytest

from rmq._fastpath.log.scan import walk_log
from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.message_store import MessageStore
from rmq.tools.store_files import StoreFiles
from tests.crash.laboratory import (
    body_of,
    damages_of,
    dice,
    messages_of,
    open_store,
    rounds,
    store_config,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]
COVERED = (*range(12), *range(28, 36), *range(84, 88))
"""Bytes of a record with IPv4 hosts before its body, which is covered too."""

BODY_AT = 88
ENTRIES = 75
"""Every queue has as many at least."""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A store that was killed with nothing flushed, and where its records stand."""
    root = tmp_path_factory.mktemp("crashed") / "store"
    config = store_config(root)
    store = MessageStore.open(config, clock=SystemClock(), store_host=bytes(8))
    for number in range(600):
        store.writes.put(Message(f"T{number // 150 % 3}", number % 2, body_of(number),
                          0, 0, 1, bytes(8)))  # fmt: skip
    store.close()
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    records = []
    with StoreFiles(root).open_log() as files:
        for file in files:
            _, _, found = walk_log(file, 0, file.size)
            records += [(file.path, file.base_offset, record) for record in found]
    assert len(records) == 600
    return root, records


def flip(path, position, bit):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def test_flips_in_records_are_detected_and_end_the_log(tmp_path, crashed):
    source, records = crashed
    chance = dice()
    count = rounds(100)
    for number in range(count):
        root = tmp_path / str(number)
        shutil.copytree(source, root)
        place = chance.randrange(len(records))
        path, base, record = records[place]
        body_size = len(body_of(place))
        at = chance.choice([*COVERED, *range(BODY_AT, BODY_AT + body_size)])
        target = root / "commitlog" / path.rpartition("/")[2]
        flip(target, record.physical_offset - base + at, chance.randrange(8))
        log = [damage for damage in damages_of(root) if damage.is_log]
        assert [damage.offset for damage in log] == [record.physical_offset]
        store = open_store(root)
        try:
            assert store.log.end_offset == record.physical_offset
            cuts = store.recovery.cuts
            assert min(cut.offset for cut in cuts) == record.physical_offset
            behind = sum(cut.record_count for cut in cuts)
            assert behind == len(records) - place - 1
            assert sorted(number for number, _ in messages_of(store)) == list(
                range(place)
            )
        finally:
            store.close()
        assert not damages_of(root)
        shutil.rmtree(root)
    print(f"{count} flips in records: all detected by verify and by recovery")  # noqa: T201


def test_flips_in_queue_entries_are_detected(tmp_path, crashed):
    source, _ = crashed
    chance = dice()
    count = rounds(100)
    queues = [queue.path for queue in StoreFiles(source).queues()]
    for number in range(count):
        root = tmp_path / str(number)
        shutil.copytree(source, root)
        folder = root / chance.choice(queues).relative_to(source)
        offset = chance.randrange(ENTRIES)
        path = folder / f"{offset * 20 // 2000 * 2000:020d}"
        flip(path, offset * 20 % 2000 + chance.randrange(20), chance.randrange(8))
        assert any(str(folder) in damage.path for damage in damages_of(root))
        shutil.rmtree(root)
    print(f"{count} flips in queue entries: all detected by verify")  # noqa: T201


def test_what_a_record_does_not_cover_the_digest_of_its_block_does(crashed, tmp_path):
    source, records = crashed
    path, base, record = records[300]
    for at in (19, 47, 51, 63, 67, 75, 83):
        root = tmp_path / str(at)
        shutil.copytree(source, root)
        target = root / "commitlog" / path.rpartition("/")[2]
        flip(target, record.physical_offset - base + at, 0)
        assert damages_of(root)
        shutil.rmtree(root / "digest")
        assert not damages_of(root)
