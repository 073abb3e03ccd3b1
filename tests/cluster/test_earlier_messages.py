"""A new slave gets compacted messages that the log of its master has deleted."""

from contextlib import ExitStack

from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.records import decode_stored
from rmq.store.compaction.compaction_store import run_steps
from rmq.testing import BrokerThread
from tests.cluster.test_pair import QUICK, context_of, copy_now, send
from tests.waiting import wait_until

SMALL = QUICK | {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "slaveReadEnable": "true",
}
KEYS = 40


def bodies_of(broker):
    """Bodies by key, as consumers read them from the first offset on."""
    reads, found, offset = context_of(broker).messages, {}, 0
    while offset < reads.max_offset("C", 0):
        result = reads.get("C", 0, offset, 32)
        for record in decode_stored(result.body):
            found[record.properties["KEYS"]] = record.body
        if result.next_begin_offset <= offset:
            break
        offset = result.next_begin_offset
    return found


async def compact_and_forget(broker):
    """Copy what there is, then delete every file of the log that is full."""
    store = context_of(broker).store
    store.durability.flush()
    while store.index.lag_bytes:
        store.index.build()
    run_steps(store.compaction.copy_steps())
    while (file := store.cleaner.take_log_file(1 << 60)) is not None:
        store.cleaner.discard([file])
    run_steps(store.cleaner.clean_queues())


def make_topic(broker):
    async def update():
        config = TopicConfig(
            topic_name="C",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            attributes={"cleanup.policy": "COMPACTION"},
        )
        context_of(broker).topics.update(config)

    broker.run(update)


def test_a_new_slave_gets_what_its_log_never_had(tmp_path):
    with ExitStack() as stack:
        master = stack.enter_context(BrokerThread(tmp_path / "master", SMALL))
        make_topic(master)
        wanted = {f"k{number}": b"%d" % number for number in range(KEYS)}
        for key, body in wanted.items():
            answer, _ = send(master, f"KEYS\x01{key}\x02", "C", body)
            assert answer.code == 0, answer.remark
        for _ in range(80):
            send(master, "", "T", bytes(1_000))
        for key in ("k1", "new"):
            wanted[key] = b"last"
            send(master, f"KEYS\x01{key}\x02", "C", b"last")
        master.run(compact_and_forget, master)
        assert context_of(master).queues.get("C", 0).min_offset == KEYS
        assert bodies_of(master) == wanted
        slave = SMALL | {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server,
        }  # fmt: skip
        with BrokerThread(tmp_path / "slave", slave) as copy:
            end = context_of(master).store.log.end_offset
            wait_until(lambda: context_of(copy).store.log.end_offset == end)
            copy_now(copy)
            wait_until(lambda: bodies_of(copy) == wanted)
        with BrokerThread(tmp_path / "slave", slave) as copy:
            assert bodies_of(copy) == wanted
