"""A loss that is accepted: the rest is served, and queues keep their offsets."""

import shutil

import pytest
from click.testing import CliRunner

from rmq._fastpath.log.decode import decode_record
from rmq.cli import main
from rmq.core.clock import SystemClock
from rmq.protocol.flags import INNER_BATCH, NEED_UNWRAP
from rmq.protocol.message import Message
from rmq.protocol.records import decode_stored
from rmq.store.config import BrokerRole, StoreConfig
from rmq.store.damage import LogDamaged
from rmq.store.message_store import MessageStore
from rmq.store.replica_writer import ReplicaWriter
from rmq.store.results import GetStatus, PutStatus
from rmq.tools.accept_loss import accept_loss, find_loss
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.store.test_recovery import crash
from tests.tools.conftest import HOST, SETTINGS

SIZE = SETTINGS["commit_log_file_size"]


def put(store, count=300):
    for n in range(count):
        body = b"%d" % n + b"." * (300 + n % 700)
        store.writes.put(
            Message("Topic", n % 3, body, 0, 0, 1, HOST, properties={"KEYS": f"k{n}"})
        )


@pytest.fixture(params=["entries are on the disk", "entries are lost"])
def killed(request, open_store):
    """Root of a store after a kill, and the places of its records by body number."""
    store = open_store()
    put(store, 201)
    if request.param == "entries are on the disk":
        store.queues.flush()
    root = store.directory.root
    image = root.with_name("image")
    shutil.copytree(root, image)
    places = {
        3 * number + queue_id: store.queues.get("Topic", queue_id).entry_at(number)[0]
        for queue_id in range(3)
        for number in range(67)
    }
    return image, places


def damage(root, offset, size=100):
    path = root / "commitlog" / f"{offset // SIZE * SIZE:020d}"
    data = bytearray(path.read_bytes())
    at = offset % SIZE
    data[at : at + size] = b"\xff" * size
    path.write_bytes(bytes(data))


def open_again(root, **settings):
    config = StoreConfig(root_dir=str(root), **SETTINGS | settings)
    return MessageStore.open(
        config, clock=SystemClock(), store_host=HOST, keeps_damage=True
    )


def run(command, root, *options):
    """Run a command of `rmq store` with the configuration of the store."""
    keys = {
        "mappedFileSizeConsumeQueue": SETTINGS["queue_file_size"],
        "maxHashSlotNum": SETTINGS["index_slots"],
        "maxIndexNum": SETTINGS["index_entries"],
        "enableLmq": "true",
        "enableMultiDispatch": "true",
    }
    path = root.with_name("broker.conf")
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    arguments = command, root, "-c", path, *options
    done = CliRunner().invoke(main, ["store", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def numbers_of(store):
    """The numbers of the messages by queue, with the queue offset of each."""
    found = {}
    for queue_id in range(3):
        offset = 0
        while offset < store.reads.max_offset("Topic", queue_id):
            result = store.reads.get("Topic", queue_id, offset, 1)
            if result.status is GetStatus.FOUND:
                record = decode_record(result.body)
                number = int(record.body.partition(b".")[0])
                found[number] = queue_id, record.queue_offset
            offset += 1
    return found


def lost_of(store, count=201):
    found = numbers_of(store)
    for number, place in found.items():
        assert place == (number % 3, number // 3)
    return sorted(set(range(count)) - found.keys())


@pytest.mark.parametrize(
    "numbers", [[50], [50, 51, 52], [90], [0], [30, 120], [64, 65, 66]]
)
def test_only_what_is_damaged_is_lost(killed, numbers):
    root, places = killed
    for number in numbers:
        damage(root, places[number])
    with pytest.raises(LogDamaged):
        open_again(root)
    output = run("accept-loss", root, "--yes")
    assert f"offsets {places[numbers[0]]} to" in output
    store = open_again(root)
    try:
        assert lost_of(store) == numbers
        offset = store.reads.max_offset("Topic", 0)
        put(store, 1)
        assert store.reads.max_offset("Topic", 0) == offset + 1
    finally:
        store.close()
    assert not Verification(StoreFiles(root)).run().damages
    assert "nothing is missing" in run("accept-loss", root, "--yes")


def test_records_of_all_files_before_the_damage_are_known(open_store):
    """No entry is on the disk: the records alone show which numbers are lost."""
    store = open_store()
    put(store, 400)
    root = image_of(store, is_flushed=False)
    place = store.queues.get("Topic", 0).entry_at(110)[0]
    assert place // SIZE >= 2
    damage(root, place)
    shutil.rmtree(root / "consumequeue")
    assert "1 known messages of 1 topics" in run("accept-loss", root, "--dry-run")


def test_a_dry_run_changes_nothing(killed):
    root, places = killed
    damage(root, places[50])
    output = run("accept-loss", root, "--dry-run")
    assert "1 known messages of 1 topics" in output
    with pytest.raises(LogDamaged):
        open_again(root)


def test_it_asks_first(killed):
    root, places = killed
    damage(root, places[50])
    done = CliRunner().invoke(main, ["store", "accept-loss", str(root)], input="n\n")
    assert done.exit_code == 1
    assert "Accept this loss?" in done.output
    with pytest.raises(LogDamaged):
        open_again(root)


def test_a_missing_file_in_the_middle(killed):
    root, places = killed
    (root / "commitlog" / f"{SIZE:020d}").unlink()
    gone = [number for number, at in places.items() if SIZE <= at < 2 * SIZE]
    run("accept-loss", root, "--yes")
    store = open_again(root)
    assert set(lost_of(store)) >= set(gone)
    assert len(lost_of(store)) - len(gone) <= 1  # the record before ended the file
    store.close()


def test_a_missing_first_file_counts_as_expired(killed):
    root, _ = killed
    (root / "commitlog" / f"{0:020d}").unlink()
    output = run("accept-loss", root, "--yes")
    assert f"the log begins at {SIZE} now" in output
    store = open_again(root)
    assert store.log.min_offset == SIZE
    store.close()


def test_a_missing_end_keeps_the_offsets_of_queues(killed):
    root, places = killed
    end = max((root / "commitlog").iterdir())
    base = int(end.name)
    end.unlink()
    kept = [number for number, at in places.items() if at < base]
    run("accept-loss", root, "--yes")
    store = open_again(root)
    assert set(numbers_of(store)) == set(kept)
    assert store.log.end_offset > base
    store.close()


def test_a_copy_of_the_log_has_no_gap(killed, open_store):
    """A slave that copies it all gets the same queues."""
    root, places = killed
    for number in (50, 51, 120):
        damage(root, places[number])
    run("accept-loss", root, "--yes")
    store = open_again(root)
    slave = open_store(root.with_name("slave"), broker_role=BrokerRole.SLAVE)
    writer = ReplicaWriter(slave)
    for file in store.log.files.files:
        end = file.write_position
        for at in range(0, end, 1000):
            data = file.read(at, min(1000, end - at))
            writer.append(file.base_offset + at, data)
    assert numbers_of(slave) == numbers_of(store)
    for queue_id in range(3):
        ends = [each.reads.max_offset("Topic", queue_id) for each in (slave, store)]
        assert ends[0] == ends[1]
    crash(slave)
    again = open_again(root.with_name("slave"), broker_role=BrokerRole.SLAVE)
    assert numbers_of(again) == numbers_of(store)
    again.close()
    store.close()


# -- queues of other forms

LMQ = {"lmq_enabled": True, "multi_dispatch_enabled": True}
LIGHT = "%LMQ%a"
INNER = NEED_UNWRAP | INNER_BATCH


def put_one(store, number, topic="Topic", sys_flag=0, **properties):
    body = b"%d" % number + b"." * 400
    message = Message(topic, 0, body, 0, sys_flag, 1, HOST, properties=properties)
    assert store.writes.put(message).status is PutStatus.PUT_OK


def read_all(store, topic):
    """Queue offsets and numbers of the messages that a reader of queue 0 gets."""
    found, offset = [], 0
    while offset < store.reads.max_offset(topic, 0):
        result = store.reads.get(topic, 0, offset, 32)
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
        for record in decode_stored(result.body):
            found.append((record.queue_offset, int(record.body.partition(b".")[0])))
    return found


def image_of(store, *, is_flushed):
    if is_flushed:
        store.queues.flush()
    root = store.directory.root
    image = root.with_name("image")
    shutil.copytree(root, image)
    return image


@pytest.mark.parametrize("is_flushed", [True, False])
def test_readers_of_a_light_queue_skip_what_is_lost(open_store, is_flushed):
    store = open_store(**LMQ)
    for number in range(60):
        more = {} if number % 2 else {"INNER_MULTI_DISPATCH": LIGHT}
        put_one(store, number, **more)
    root = image_of(store, is_flushed=is_flushed)
    for number in (20, 21, 24):
        damage(root, store.queues.get("Topic", 0).entry_at(number)[0])
    output = run("accept-loss", root, "--yes")
    assert "2 known messages of 1 topics" in output
    assert "1 known messages of 1 topics" in output
    again = open_again(root, **LMQ)
    offsets = [number for _, number in read_all(again, LIGHT)]
    assert offsets == [each for each in range(0, 60, 2) if each not in (20, 24)]
    assert again.reads.max_offset(LIGHT, 0) == 30
    again.close()


@pytest.mark.parametrize(("is_flushed", "count"), [(True, 1), (True, 3), (False, 3)])
def test_readers_of_a_queue_of_batches_skip_what_is_lost(open_store, is_flushed, count):
    """A copy of the log has the same queue, and so have queues that are built again."""
    store = open_store()
    store.queues.make_batch("Batch")
    more = {"INNER_NUM": str(count)} if count > 1 else {}
    for number in range(60):
        put_one(store, number, "Batch", INNER if count > 1 else 0, **more)
    root = image_of(store, is_flushed=is_flushed)
    lost = [20, 21, 24]
    for number in lost:
        damage(root, store.queues.get("Batch", 0).entry_at(number * count)[0])
    expected = [(each * count, each) for each in range(60) if each not in lost]
    output = run("accept-loss", root, "--yes")
    assert f"{2 * count} known messages of 1 topics" in output
    again = open_again(root)
    assert read_all(again, "Batch") == expected
    again.close()
    assert Verification(StoreFiles(root)).run().damages == []
    shutil.rmtree(root / "batchconsumequeue" / "Batch" / "0")
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    rebuilt = open_again(root)
    assert read_all(rebuilt, "Batch") == expected
    assert rebuilt.reads.max_offset("Batch", 0) == 60 * count
    rebuilt.close()


def test_a_kill_in_the_middle_leaves_no_entry_of_a_tombstone(killed, monkeypatch):
    """It is accepted again, and nobody gets a tombstone."""
    root, places = killed
    for number in (50, 51, 52):
        damage(root, places[number])
    calls = []

    class Killed(Exception):
        pass

    def sync(patch):
        calls.append(1)
        if len(calls) == 1:
            raise Killed

    files = StoreFiles(root)
    values = {"mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "1000"}
    loss = find_loss(files, values)
    with monkeypatch.context() as patched:
        patched.setattr("rmq.store.patch.LogPatch.sync", sync)
        with pytest.raises(Killed):
            accept_loss(files, values, loss)
    with pytest.raises(LogDamaged):
        open_again(root)
    run("accept-loss", root, "--yes")
    store = open_again(root)
    assert lost_of(store) == [50, 51, 52]
    store.close()


def test_tombstones_are_no_damage_of_blocks(open_store):
    """Their bytes are others than the sealed ones."""
    store = open_store()
    put(store, 300)
    store.durability.flush()
    store.digests.update(saves_all=True)
    root = image_of(store, is_flushed=True)
    assert len(list((root / "digest").iterdir())) > 1
    place = store.queues.get("Topic", 0).entry_at(5)[0]
    damage(root, place)
    run("accept-loss", root, "--yes")
    again = open_again(root)
    again.digests.update()
    assert 0 not in lost_of(again, 300)
    ranges = [(file.base_offset, file.size) for file in again.log.files.files]
    assert again.digests.first_bad(ranges) is None
    again.close()
    assert Verification(StoreFiles(root)).run().damages == []


def test_a_store_in_use_is_refused(filled, open_store):
    store = open_store(filled)
    done = CliRunner().invoke(main, ["store", "accept-loss", str(filled), "--yes"])
    assert done.exit_code == 1
    assert "another broker uses" in done.output or "is open already" in done.output
    store.close()
