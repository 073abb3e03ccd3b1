"""The interchange ladder: a directory of Java's served by rmq, and the other way.

Each round the directory changes hands.  What one side served before its stop the other
serves after its start, byte for byte; after `kill -9` under load everything that was
acknowledged is there, once and in its place.  Rounds: RMQ_INTEROP_ROUNDS (4).
"""

import os
import shutil
import time

import pytest

from rmq._fastpath.log.layout import RecordFlag
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import pop_retry_topic
from rmq.tools.inspect import inspect
from rmq.tools.repair import repair
from rmq.tools.settle import recover_store
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .groups import send
from .interchange import (
    DELAY_TOPIC,
    LOG_FILE_SIZE,
    LONG_TOPIC,
    QUEUES,
    RETRY,
    SETTINGS,
    TOPIC,
    TOPICS,
    TX_TOPIC,
    Line,
    Traffic,
    assert_kept,
    java_side,
    kill_under_load,
    records_of,
    rmq_side,
    served,
)
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3600)]

ROUNDS = int(os.environ.get("RMQ_INTEROP_ROUNDS", "4"))
MESSAGES = 300
SETTLE_S = 15
RECORD_CRC = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
BOTH_HOSTS_V6 = int(RecordFlag.BORN_HOST_V6) | int(RecordFlag.STORE_HOST_V6)
PENDING, PENDING_S = 20, 15
QUIET_S = 5


@pytest.fixture(scope="module", autouse=True)
def servers():
    return prepared(JavaServers())


HOSTS = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
"""IPv6 hosts make other records: 20 bytes for a host, flags, longer message ids."""


def side_of(number, tmp_path, host):
    """Java begins; each side gets a home of its own."""
    side = rmq_side if number % 2 else java_side
    return side(tmp_path / "store", tmp_path / f"home{number}", host)


def assert_hosts(address, host):
    """The flags say of which kind the hosts of the records are."""
    records = wire.pull(address, TOPIC, queues=QUEUES)
    wanted = BOTH_HOSTS_V6 if ":" in host else 0
    assert {record.sys_flag & BOTH_HOSTS_V6 for record in records} == {wanted}


def make_topics(address):
    for topic in (TOPIC, LONG_TOPIC, TX_TOPIC, DELAY_TOPIC):
        wire.make_topic(address, topic, QUEUES)


def settled(address, traffic):
    """Wait until delays and retries have arrived; what is served then."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            assert_kept(address, traffic)
            return served(address)
        except (AssertionError, KeyError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def assert_sound(store):
    verdict = Verification(StoreFiles(store)).run()
    assert not verdict.damages, [str(damage) for damage in verdict.damages[:5]]
    assert inspect(StoreFiles(store))


@HOSTS
def test_the_directory_changes_hands(tmp_path, host):
    """Clean stops: nothing that the other side serves differs."""
    traffic, store, before = Traffic(), tmp_path / "store", {}
    for number in range(ROUNDS):
        with side_of(number, tmp_path, host) as side:
            if number == 0:
                make_topics(side.address)
            else:
                wait_until(
                    lambda: before.items() <= served(side.address).items(),  # noqa: B023
                    f"round {number} serves what was served before",
                )
            traffic.run(side.address, MESSAGES)
            before = settled(side.address, traffic)
            assert_hosts(side.address, host)
        assert not (store / "abort").exists()
        assert_sound(store)
    sent = len(traffic.plain)
    print(f"{host}: {ROUNDS} rounds, {len(before)} facts alike, {sent} plain")


@HOSTS
def test_the_directory_changes_hands_after_kills(tmp_path, host):
    """`kill -9` under load: what was acknowledged is served by the other side."""
    traffic, store = Traffic(), tmp_path / "store"
    for number in range(ROUNDS):
        with side_of(number, tmp_path, host) as side:
            if number == 0:
                make_topics(side.address)
            traffic.run(side.address, MESSAGES)
            settled(side.address, traffic)
            kill_under_load(side, traffic)
        assert (store / "abort").exists()
    with side_of(ROUNDS, tmp_path, host) as side:
        settled(side.address, traffic)
        assert_hosts(side.address, host)
    print(
        f"{host}: {ROUNDS} kills, {len(traffic.plain)} acknowledged, 0 lost, 0 repeated"
    )


def test_records_with_a_crc_change_hands(tmp_path):
    """`kill -9` in turn: each recovery checks the CRC of what the other side wrote."""
    traffic, store = Traffic(), tmp_path / "store"
    for number in range(ROUNDS + 1):
        side = rmq_side if number % 2 else java_side
        with side(store, tmp_path / f"home{number}", **RECORD_CRC) as one:
            if number == 0:
                make_topics(one.address)
            traffic.run(one.address, MESSAGES)
            settled(one.address, traffic)
            records = records_of(one.address, traffic.topics).values()
            assert all("__CRC32#" in each.properties for each in records)
            kill_under_load(one, traffic)
    print(
        f"{ROUNDS + 1} kills, {len(traffic.plain)} acknowledged, 0 lost, all with CRC"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [(java_side, rmq_side), (rmq_side, java_side)],
    ids=["Java to rmq", "rmq to Java"],
)
def test_a_changed_property_ends_the_log_of_the_other_side(tmp_path, first, second):
    """Only the CRC of the whole record covers it."""
    store = tmp_path / "store"
    with first(store, tmp_path / "home0", **RECORD_CRC) as one:
        make_topics(one.address)
        traffic = Traffic()
        traffic.run(one.address, MESSAGES)
        settled(one.address, traffic)
        one.kill()
    newest = traffic.plain[-1]
    base = newest.physical_offset // LOG_FILE_SIZE * LOG_FILE_SIZE
    path = store / "commitlog" / f"{base:020d}"
    flip(path, path.read_bytes().index(b"TRACE_ON", newest.physical_offset - base))
    with second(store, tmp_path / "home1", **RECORD_CRC) as other:
        known = records_of(other.address)
    places = {(TOPIC, each.queue_id, each.queue_offset) for each in traffic.plain}
    lost = (TOPIC, newest.queue_id, newest.queue_offset)
    assert places - known.keys() == {lost}


@pytest.mark.parametrize("is_killed", [False, True], ids=["clean", "killed"])
def test_a_log_in_several_folders_changes_hands(tmp_path, is_killed):
    """Each side continues in the folders of the other; the first becomes read-only."""
    folders = [tmp_path / f"disk{number}" for number in range(3)]
    kept = folders[0]
    traffic, store = Traffic(), tmp_path / "store"
    files = set()
    for number in range(ROUNDS):
        settings = {"storePathCommitLog": ",".join(map(str, folders))}
        if number >= 2:
            settings["readOnlyCommitLogStorePaths"] = kept
            files = files or set(kept.iterdir())
        side_of_round = rmq_side if number % 2 else java_side
        with side_of_round(store, tmp_path / f"home{number}", **settings) as side:
            if number == 0:
                make_topics(side.address)
            traffic.run(side.address, 4 * MESSAGES)
            settled(side.address, traffic)
            if is_killed:
                kill_under_load(side, traffic)
    assert all(list(folder.iterdir()) for folder in folders)
    assert set(kept.iterdir()) == files
    with rmq_side(store, tmp_path / "home", **settings) as side:
        settled(side.address, traffic)
    verdict = Verification(StoreFiles(store, folders)).run()
    assert not verdict.damages, [str(damage) for damage in verdict.damages[:5]]


POP_TOPIC, POP_GROUP, INVISIBLE_MS = "Popped", "poppers", 2_000
POP_RETRY = pop_retry_topic(POP_TOPIC, POP_GROUP)


def pop_all(address, *, acks=False):
    """Pop until nothing comes; return (attempts, body, queue) of each message."""
    found = []
    while True:
        fields = {
            "consumerGroup": POP_GROUP, "topic": POP_TOPIC, "queueId": -1,
            "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS, "pollTime": 0,
            "bornTime": 0, "initMode": 0, "order": "false",
        }  # fmt: skip
        answer = wire.call(address, RequestCode.POP_MESSAGE, fields)
        if answer.code != ResponseCode.SUCCESS:
            return found
        handles = wire.pop_handles(
            answer.ext_fields, SETTINGS["brokerName"], POP_TOPIC, POP_RETRY
        )
        for record, (topic, queue_id, offset, handle) in zip(
            decode_stored(answer.body), handles, strict=True
        ):
            found.append((record.reconsume_times, record.body, int(queue_id)))
            if acks:
                ack = {
                    "consumerGroup": POP_GROUP, "queueId": queue_id, "offset": offset,
                    "topic": topic, "extraInfo": handle,
                }  # fmt: skip
                acked = wire.call(address, RequestCode.ACK_MESSAGE, ack)
                assert acked.code == ResponseCode.SUCCESS, acked.remark


def test_separate_retry_queues_change_hands(tmp_path):
    """A message that nobody acks keeps its queue id, whoever stores it again."""
    settings = {
        "useSeparateRetryQueue": "true", "timerWheelEnable": "true",
        "mappedFileSizeTimerLog": 1 << 20,
    }  # fmt: skip
    bodies = {b"%d" % number: number % QUEUES for number in range(40)}
    for number in range(ROUNDS + 1):
        side_of_round = rmq_side if number % 2 else java_side
        home = tmp_path / f"home{number}"
        with side_of_round(tmp_path / "store", home, **settings) as side:
            if number == 0:
                wire.make_topic(side.address, POP_TOPIC, QUEUES)
                line = Line(side.address)
                for body, queue_id in bodies.items():
                    answer = send(line, POP_TOPIC, queue_id, body, "")
                    assert answer.code == ResponseCode.SUCCESS, answer.remark
                line.close()
            got = []
            deadline = time.monotonic() + 60
            while len({body for _, body, _ in got}) < len(bodies):
                assert time.monotonic() < deadline, f"round {number}: {len(got)}"
                got += pop_all(side.address, acks=number == ROUNDS)
                time.sleep(0.5)
            assert {(body, queue_id) for _, body, queue_id in got} == bodies.items()
            assert min(times for times, _, _ in got) >= min(number, 1)
            if number == ROUNDS:
                time.sleep(3 * INVISIBLE_MS / 1_000)
                assert not pop_all(side.address)
    print(f"{ROUNDS} rounds of retries by turns, {len(bodies)} messages kept a queue")


def test_java_opens_what_settle_left(tmp_path):
    """A durable broker writes its log from a ring, which Java does not know."""
    traffic, store = Traffic(), tmp_path / "store"
    durable = {"flushDiskType": "SYNC_FLUSH"}
    for number in range(2):
        with rmq_side(store, tmp_path / f"home{2 * number}", **durable) as side:
            if number == 0:
                make_topics(side.address)
            traffic.run(side.address, MESSAGES)
            settled(side.address, traffic)
            kill_under_load(side, traffic)
        assert (store / "ring").exists()
        lines = recover_store(StoreFiles(store), {})
        assert lines[-1].endswith("is in the state after a clean shutdown")
        assert not (store / "ring").exists()
        assert not (store / "abort").exists()
        assert_sound(store)
        with java_side(store, tmp_path / f"home{2 * number + 1}") as side:
            settled(side.address, traffic)
            assert_hosts(side.address, "127.0.0.1")
    print(f"2 kills of a durable broker, {len(traffic.plain)} acknowledged, 0 lost")


@pytest.mark.parametrize(
    ("first", "second"),
    [(java_side, rmq_side), (rmq_side, java_side)],
    ids=["Java to rmq", "rmq to Java"],
)
def test_what_is_pending_changes_hands(tmp_path, first, second):
    """Delays and retries come once, when they are due; open transactions are checked.

    The side that had them first does not know more of them afterwards.
    """
    traffic, store = Traffic(), tmp_path / "store"
    levels = {"messageDelayLevel": f"1s {PENDING_S}s"}
    with first(store, tmp_path / "home0", **levels) as side:
        make_topics(side.address)
        began_ms = time.time() * 1_000
        traffic.leave_pending(side.address, 2, PENDING)
        stopped_s = time.monotonic()
    checking = {
        "transactionTimeOut": 1_000,
        "transactionCheckInterval": 1_000,
        # Java would ask again before it has noted the answer, and deliver both
        "transactionOpBatchInterval": 100,
    }
    with second(store, tmp_path / "home1", **levels, **checking) as side:
        came_late = time.monotonic() - stopped_s
        traffic.answer_checks(side.address, lambda: has_come(side.address, traffic))
        time.sleep(QUIET_S)
        assert_once(side.address, traffic, began_ms)
        before = served(side.address)
    with first(store, tmp_path / "home2", **levels, **checking) as side:
        time.sleep(QUIET_S)
        assert_once(side.address, traffic, began_ms)
        assert before.items() <= served(side.address).items()
    print(f"{3 * PENDING} pending, served again after {came_late:.1f} s")


def has_come(address, traffic):
    try:
        assert_kept(address, traffic)
    except (AssertionError, KeyError):
        return False
    return True


def assert_once(address, traffic, began_ms):
    """Nothing is early, nothing comes twice, and nothing that was rolled back comes."""
    assert_kept(address, traffic)
    for topic in (DELAY_TOPIC, RETRY):
        found = wire.pull(address, topic, queues=TOPICS[topic])
        assert len(found) == len({record.body for record in found}) == PENDING
        assert min(r.store_timestamp for r in found) >= began_ms + PENDING_S * 1_000


def queue_bytes(store):
    return {
        path.relative_to(store): path.read_bytes()
        for path in sorted((store / "consumequeue").rglob("*"))
        if path.is_file()
    }


def index_bytes(store):
    """Index files in order, whatever their names; the end of the header is a cache."""
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


def test_both_dispatch_the_same_log_to_the_same_bytes(tmp_path):
    """Queues and index are built from one log by both, after a crash without them."""
    with rmq_side(tmp_path / "store", tmp_path / "home") as side:
        make_topics(side.address)
        traffic = Traffic()
        traffic.run(side.address, MESSAGES)
        settled(side.address, traffic)
    built = {}
    for name, side_on in (("rmq", rmq_side), ("java", java_side)):
        store = tmp_path / name
        shutil.copytree(tmp_path / "store", store)
        shutil.rmtree(store / "consumequeue")
        shutil.rmtree(store / "index")
        (store / "checkpoint").unlink()
        (store / "config" / "queueEnds.json").unlink()
        (store / "abort").touch()
        with side_on(store, tmp_path / f"home-{name}") as side:
            settled(side.address, traffic)
        built[name] = queue_bytes(store), index_bytes(store)
    assert built["rmq"][0] == built["java"][0]
    assert built["rmq"][1] == built["java"][1]


def test_java_opens_what_repair_mended(tmp_path):
    """Queues and index that were damaged are whole again, for Java too."""
    traffic, store = Traffic(), tmp_path / "store"
    with java_side(store, tmp_path / "home0") as side:
        make_topics(side.address)
        traffic.run(side.address, MESSAGES)
        before = settled(side.address, traffic)
    shutil.rmtree(store / "consumequeue" / TOPIC / "0")
    for path in (store / "consumequeue" / TOPIC / "1").iterdir():
        flip(path, 1_003)
    for path in (store / "index").iterdir():
        flip(path, 12)
    assert Verification(StoreFiles(store)).run().damages
    repair(StoreFiles(store), {})
    assert_sound(store)
    with java_side(store, tmp_path / "home1") as side:
        wait_until(
            lambda: before.items() <= served(side.address).items(),
            "Java serves what was there before the damage",
        )


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


def place_of(line, number):
    """Send a message with the key of this number; its queue, and both offsets."""
    answer = send(line, TOPIC, number % QUEUES, b"%d" % number, f"{number:032X}")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    fields = answer.ext_fields  # a message id begins with the broker's address
    return fields["queueId"], fields["queueOffset"], fields["msgId"][-16:]


def test_each_key_is_stored_once_on_a_directory_that_java_had(tmp_path):
    """Also the keys of messages that Java stored; Java keeps the attribute."""
    places = {}
    for number, side in enumerate((rmq_side, java_side, rmq_side)):
        with side(tmp_path / "store", tmp_path / f"home{number}") as one:
            if number == 0:
                window = "+rmq.once.window.ms=86400000"
                wire.make_topic(one.address, TOPIC, QUEUES, window)
            line = Line(one.address)
            for key in range(100 * number, 100 * (number + 1)):
                places[key] = place_of(line, key)
            if side is rmq_side:
                again = {key: place_of(line, key) for key in places}
                assert again == places
            line.close()
            records = wire.pull(one.address, TOPIC, queues=QUEUES)
            assert len(records) == len(places)
