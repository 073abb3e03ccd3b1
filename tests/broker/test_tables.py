"""Tables: what the files hold, what is refused, when the backup counts."""

import errno
import json
import time
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker import housekeeping
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import OffsetTable
from rmq.broker.tables.topics import MAX_RESTORED_QUEUES, TopicTable
from rmq.config.broker import BrokerConfig
from rmq.core.errors import RequestRejected, StoreError
from rmq.protocol import fastjson
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq.protocol.bodies.queues import ConsumerOffsetSerializeWrapper
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from rmq.protocol.encoded_members import PER_TURN
from rmq.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def topics(tmp_path, clock):
    table = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    table.load()
    return table


def offsets(folder, clock, step=500):
    table = OffsetTable(folder, clock, step)
    table.load()
    return table


def topic(name, queues=4):
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6
    )


def test_a_saved_table_is_found_again_and_its_version_continues(
    tmp_path, topics, clock
):
    topics.update(topic("T"))
    topics.write(topics.snapshot())
    assert not topics.is_dirty
    again = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    again.load()
    assert again.get("T") == topic("T")
    assert again.data_version == topics.data_version
    assert not again.is_dirty
    clock.ms += 1
    is_changed = again.update(topic("T", 8))
    assert is_changed
    assert again.data_version.counter == topics.data_version.counter + 1
    assert again.data_version.timestamp == clock.ms


def test_the_same_topic_again_changes_nothing(topics):
    is_changed = topics.update(topic("T"))
    assert is_changed
    version = topics.data_version
    is_changed = topics.update(topic("T"))
    assert not is_changed
    assert topics.data_version == version


def test_listeners_hear_of_changes_and_ends(topics):
    heard = []
    topics.on_change.append(lambda name, config: heard.append((name, config)))
    topics.update(topic("T"))
    topics.update(topic("T"))
    is_changed = topics.delete("T")
    assert is_changed
    is_changed = topics.delete("T")
    assert not is_changed
    assert heard == [("T", topic("T")), ("T", None)]


def test_a_cut_file_gives_way_to_its_backup_and_says_so(tmp_path, clock, caplog):
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    for name in ("G1", "G2"):
        groups.find(name)
        groups.write(groups.snapshot())
    file = tmp_path / "subscriptionGroup.json"
    file.write_bytes(file.read_bytes()[:100])
    again = GroupTable(tmp_path, clock, BrokerConfig())
    again.load()
    assert again.get("G1") is not None
    assert again.get("G2") is None
    assert (tmp_path / "subscriptionGroup.json.bad").exists()
    assert "backup" in caplog.text


def test_the_journal_brings_back_what_a_backup_of_topics_misses(
    tmp_path, topics, clock
):
    for queues in (1, 2):
        topics.update(topic("T", queues))
        topics.write(topics.snapshot())
    file = tmp_path / "topics.json"
    file.write_bytes(file.read_bytes()[:100])
    again = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    again.load()
    assert again.get("T").write_queue_nums == 2


@pytest.mark.parametrize(
    "text", ["[]", '{"topicConfigTable":7}', '{"topicConfigTable":{"../x":{}}}']
)
def test_files_of_another_shape_are_refused(tmp_path, clock, text):
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / name).write_text(text)
    table = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    with pytest.raises(StoreError, match=r"topics\.json\.bak"):
        table.load()


@pytest.mark.parametrize("number", ["1e400", "NaN", "-1e400", '"1e400"', "9" * 400])
def test_an_offset_that_is_no_number_gives_way_to_the_backup(tmp_path, clock, number):
    """1e400 was a traceback at the start."""
    text = '{"offsetTable":{"T@G":{0:%s}}}'
    (tmp_path / "consumerOffset.json").write_text(text % number)
    (tmp_path / "consumerOffset.json.bak").write_text(text % 5)
    table = offsets(tmp_path, clock)
    assert table.query("G", "T", 0) == 5
    assert (tmp_path / "consumerOffset.json.bad").exists()


@pytest.mark.parametrize("torn", [b"", b" \n", bytes(100)])
def test_a_file_without_text_is_torn(tmp_path, clock, torn):
    """Two truncated files were an empty table: all committed offsets became 0."""
    file, backup = (
        tmp_path / "consumerOffset.json",
        tmp_path / "consumerOffset.json.bak",
    )
    file.write_bytes(torn)
    backup.write_text('{"offsetTable":{"T@G":{0:5}}}')
    found = offsets(tmp_path, clock).query("G", "T", 0)
    backup.write_bytes(torn)
    with pytest.raises(StoreError, match=r"consumerOffset\.json\.bak"):
        offsets(tmp_path, clock)
    assert found == 5


def test_a_removed_table_does_not_come_back_from_a_generation(tmp_path, clock):
    (tmp_path / "consumerOffset.json.1").write_text('{"offsetTable":{"T@G":{0:5}}}')
    assert offsets(tmp_path, clock).query("G", "T", 0) == -1


def test_an_older_generation_replaces_two_torn_versions(tmp_path, clock):
    for ending in ("", ".bak", ".1"):
        (tmp_path / f"consumerOffset.json{ending}").write_bytes(b"")
    (tmp_path / "consumerOffset.json.2").write_text('{"offsetTable":{"T@G":{0:5}}}')
    table = offsets(tmp_path, clock)
    assert table.query("G", "T", 0) == 5
    assert "reads consumerOffset.json.2, which was saved at an unknown" in table.loss


def test_topics_made_by_a_send_are_those_of_the_default_topic(topics):
    made = topics.create_for_send("New", "TBW102", 3, "1.2.3.4:5")
    assert (made.write_queue_nums, made.perm) == (3, 6)
    assert topics.create_for_send("New", "TBW102", 8, "") is made
    many = topics.create_for_send("Many", "TBW102", 99, "")
    assert many.write_queue_nums == 8
    assert topics.create_for_send("X", "New", 4, "") is None
    assert topics.create_for_send("X", "Nowhere", 4, "") is None
    with pytest.raises(RequestRejected):
        topics.create_for_send("../x", "TBW102", 4, "")


def test_no_topic_is_made_where_that_is_switched_off(tmp_path, clock):
    config = BrokerConfig(broker_name="b", auto_create_topic_enable=False)
    table = TopicTable(tmp_path, clock, config)
    table.load()
    assert table.create_for_send("New", "TBW102", 3, "") is None


def test_tables_fed_from_outside_have_a_limit(topics, tmp_path, clock, monkeypatch):
    count = len(topics.all())
    monkeypatch.setattr("rmq.broker.tables.topics.MAX_TOPICS", count)
    full = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    full.load()
    with pytest.raises(RequestRejected, match=f"{count} topics: delete some first"):
        full.update(topic("OneTooMany"))
    monkeypatch.setattr("rmq.broker.tables.groups.MAX_GROUPS", 1)
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    assert groups.find("G1") is not None
    with pytest.raises(RequestRejected, match="delete some first"):
        groups.find("G2")
    with pytest.raises(RequestRejected, match="1 of 1 groups"):
        groups.update(SubscriptionGroupConfig(group_name="G3"))
    groups.delete("G1")
    groups.update(SubscriptionGroupConfig(group_name="G3"))


def test_a_topic_that_only_the_log_knows_is_served_again(topics):
    topics.update(topic("T", 2))
    for name, queue_id in ("T", 7), ("U", 7), ("V", 1_000_000), ("%LMQ%w", 0):
        topics.restore(name, queue_id)
    found = {name: topics.get(name) for name in ("T", "U", "V", "%LMQ%w")}
    queues = {name: each and each.write_queue_nums for name, each in found.items()}
    assert queues == {"T": 2, "U": 8, "V": MAX_RESTORED_QUEUES, "%LMQ%w": None}


def test_a_topic_of_the_log_stays_without_a_route_in_a_full_table(
    tmp_path, clock, monkeypatch
):
    monkeypatch.setattr("rmq.broker.tables.topics.MAX_TOPICS", 0)
    full = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    full.restore("U", 7)
    assert full.get("U") is None


def test_offsets_have_a_limit(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("rmq.broker.tables.offsets.MAX_ENTRIES", 1)
    monkeypatch.setattr("rmq.broker.tables.offsets.MAX_OFFSETS", 3)
    table = offsets(tmp_path, clock)
    table.commit("c", "G", "T", 0, 1)
    table.commit("c", "G", "T", 1, 1)
    with pytest.raises(RequestRejected, match="1 of 1 pairs"):
        table.commit("c", "G2", "T", 0, 1)
    table.commit("c", "G", "T", 1, 5)
    table.commit("c", "G", "T", 3, 5)
    with pytest.raises(RequestRejected, match="3 of 3 queues with offsets"):
        table.commit("c", "G", "T", 2, 1)
    table.remove_topic("T")
    table.commit("c", "G", "T", 2, 1)


def test_one_host_leaves_places_in_the_tables_to_others(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("rmq.broker.tables.groups.MAX_GROUPS", 10)
    monkeypatch.setattr("rmq.broker.tables.offsets.MAX_ENTRIES", 10)
    monkeypatch.setattr("rmq.broker.tables.topics.MAX_TOPICS", 30)
    groups, table = (
        GroupTable(tmp_path, clock, BrokerConfig()),
        offsets(tmp_path, clock),
    )
    topics = TopicTable(tmp_path, clock, BrokerConfig(broker_name="b"))
    topics.load()
    free = 30 - len(topics.all())
    for number in range(5):
        groups.find(f"G{number}", f"10.0.0.1:{number}")
        table.commit(f"10.0.0.1:{number}", f"G{number}", "T", 0, 1)
    for number in range((free + 1) // 2):
        topics.create_for_send(f"T{number}", "TBW102", 1, f"10.0.0.1:{number}")
    for refused in (
        lambda: groups.find("More", "10.0.0.1:9"),
        lambda: table.commit("10.0.0.1:9", "More", "T", 0, 1),
        lambda: topics.create_for_send("More", "TBW102", 1, "10.0.0.1:9"),
    ):
        with pytest.raises(
            RequestRejected, match=r"10\.0\.0\.1 has \d+ and this broker"
        ):
            refused()
    assert groups.find("Other", "10.0.0.2:1") is not None
    table.commit("10.0.0.2:1", "Other", "T", 0, 1)
    assert topics.create_for_send("Other", "TBW102", 1, "10.0.0.2:1") is not None
    is_changed = groups.delete("G0")
    assert is_changed
    assert groups.find("More", "10.0.0.1:9") is not None
    table.remove_group("G0")
    table.commit("10.0.0.1:9", "More", "T", 0, 1)


def test_groups_come_into_being_where_that_is_allowed(tmp_path, clock):
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    groups.load()
    assert groups.get("G") is None
    assert groups.find("G") == SubscriptionGroupConfig(group_name="G")
    assert groups.find("../x") is None
    strict = GroupTable(
        tmp_path, clock, BrokerConfig(auto_create_subscription_group=False)
    )
    strict.load()
    assert strict.find("G") is None
    assert strict.find("CID_RMQ_SYS_X") is not None
    assert strict.get("TOOLS_CONSUMER") is not None


def test_what_a_group_may_not_read_is_kept_and_goes_with_it(tmp_path, clock):
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    groups.find("G")
    groups.forbidden_topics["G"] = {"T": 4}
    groups.write(groups.snapshot())
    again = GroupTable(tmp_path, clock, BrokerConfig())
    again.load()
    assert again.is_forbidden("G", "T")
    assert not again.is_forbidden("G", "U")
    assert not again.is_forbidden("H", "T")
    is_changed = again.delete("G")
    assert is_changed
    is_changed = again.delete("G")
    assert not is_changed
    assert not again.is_forbidden("G", "T")


def test_offsets_are_saved_as_java_writes_them(tmp_path, clock):
    table = offsets(tmp_path, clock, step=2)
    table.commit("c", "G", "T", 0, 5)
    table.commit("c", "G", "T", 1, 6)
    table.commit("c", "G", "T", 0, 3)
    assert table.data_version.counter == 1
    table.write(table.snapshot())
    value = json.loads((tmp_path / "consumerOffset.json").read_text())
    assert value["offsetTable"] == {"T@G": {"0": 3, "1": 6}}
    again = offsets(tmp_path, clock)
    assert [again.query("G", "T", queue) for queue in range(3)] == [3, 6, -1]
    assert again.query("G2", "T", 0) == -1


def test_offsets_of_topics_and_groups_can_be_forgotten(tmp_path, clock):
    table = offsets(tmp_path, clock)
    for group in ("G", "H"):
        for name in ("T", "U"):
            table.commit("c", group, name, 0, 1)
    table.remove_topic("T")
    table.remove_group("H")
    left = [
        (group, name)
        for group in "GH"
        for name in "TU"
        if table.query(group, name, 0) >= 0
    ]
    assert left == [("G", "U")]


def test_java_writes_queue_numbers_without_quotes(tmp_path, clock):
    (tmp_path / "consumerOffset.json").write_text(
        '{"dataVersion":{"counter":9},"offsetTable":{"T@G":{0:7,1:8}}}'
    )
    table = offsets(tmp_path, clock)
    assert (table.query("G", "T", 0), table.query("G", "T", 1)) == (7, 8)
    assert table.data_version.counter == 9


async def test_a_table_whose_saving_is_cancelled_is_saved_or_dirty(tmp_path, clock):
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    groups.find("G1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await housekeeping.save_now([groups])
    again = GroupTable(tmp_path, clock, BrokerConfig())
    again.load()
    assert groups.is_dirty or again.get("G1") is not None


class WatchedTable(GroupTable):
    """Its saves take a while, the first may meet a full disk."""

    is_full = False

    def __init__(self, folder, clock):
        super().__init__(folder, clock, BrokerConfig())
        self.attempts, self._wanted, self._over = 0, 0, trio.Event()

    def write(self, text):
        time.sleep(0.1)
        if not self.is_full or self.attempts:
            super().write(text)
        trio.from_thread.run_sync(self._count)
        if self.is_full and self.attempts == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _count(self):
        self.attempts += 1
        if self.attempts == self._wanted:
            self._over.set()

    async def attempted(self, count):
        self._wanted, self._over = count, trio.Event()
        if self.attempts < count:
            with trio.fail_after(5):
                await self._over.wait()


async def test_a_full_disk_is_tried_again(tmp_path, clock, nursery, monkeypatch):
    monkeypatch.setattr(housekeeping, "RETRY_S", 0.05)
    groups = WatchedTable(tmp_path, clock)
    groups.is_full = True
    nursery.start_soon(housekeeping.save_changes, groups, 0.0)
    groups.find("G1")
    await groups.attempted(2)
    again = GroupTable(tmp_path, clock, BrokerConfig())
    again.load()
    assert again.get("G1") is not None


async def test_a_full_disk_at_the_stop_hinders_no_other_table(tmp_path, clock, caplog):
    full = WatchedTable(tmp_path / "full", clock)
    full.is_full = True
    groups = GroupTable(tmp_path, clock, BrokerConfig())
    full.find("G1")
    groups.find("G1")
    await housekeeping.save_now([full, groups])
    assert "is not saved: No space left on device" in caplog.text
    assert full.is_dirty
    assert not groups.is_dirty


def filled(table, body):
    """Return what `JsonTable.fill_document` returns."""
    return trio.run(table.fill_document, body)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "put", "remove"]), st.integers(0, 5)), max_size=20
)


@given(CHANGES)
def test_topics_are_written_and_sent_byte_by_byte_as_a_whole(changes):
    table = TopicTable(Path("nowhere"), ManualClock(), BrokerConfig(broker_name="b"))
    for what, number in changes:
        if what == "put":
            more = {"a": 'x"y'} if number % 2 else {}
            table.update(msgspec.structs.replace(topic(f"T{number}"), attributes=more))
        else:
            table.delete(f"T{number}")
        wrapper = TopicConfigSerializeWrapper(
            data_version=table.data_version, topic_config_table=table.all()
        )
        assert b"".join(table.snapshot()) == fastjson.dumps_pretty(wrapper)
    body = TopicConfigAndMappingSerializeWrapper(data_version=table.data_version)
    text = filled(table, body)
    body.topic_config_table = table.all()
    assert text == body.encode()


@given(CHANGES)
def test_groups_are_written_and_sent_byte_by_byte_as_a_whole(changes):
    table = GroupTable(Path("nowhere"), ManualClock(), BrokerConfig())
    table.find("subscriptionGroupTable")
    table.set_readable("subscriptionGroupTable", "T", is_readable=False)
    for what, number in changes:
        if what == "put":
            table.find(f"G{number}")
        else:
            table.delete(f"G{number}")
        wrapper = SubscriptionGroupWrapper(
            data_version=table.data_version,
            subscription_group_table=table.all(),
            forbidden_table=table.forbidden_topics,
        )
        assert b"".join(table.snapshot()) == fastjson.dumps_pretty(wrapper)
    body = SubscriptionGroupWrapper(
        data_version=table.data_version, forbidden_table=table.forbidden_topics
    )
    text = filled(table, body)
    body.subscription_group_table = table.all()
    assert text == body.encode()


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3, st.integers(0, 99)), max_size=30))
def test_offsets_are_written_and_sent_byte_by_byte_as_a_whole(commits):
    table = OffsetTable(Path("nowhere"), ManualClock(), 7)
    groups = {}
    for group, name, queue_id, offset in commits:
        if offset:
            table.commit("c", f"G{group}", f"T{name}", queue_id, offset)
        else:
            table.remove_topic(f"T{name}")
    for key in table.all():
        name, _, group = key.partition("@")
        groups.setdefault(group, []).append(name)
    content = {
        "dataVersion": table.data_version,
        "offsetTable": {
            key: {str(queue_id): offset for queue_id, offset in queues.items()}
            for key, queues in table.all().items()
        },
    }
    assert b"".join(table.snapshot()) == fastjson.dumps_pretty(content)
    body = ConsumerOffsetSerializeWrapper(
        data_version=table.data_version, group_topic_map=table.topics_by_group()
    )
    assert {k: sorted(v) for k, v in body.group_topic_map.items()} == {
        k: sorted(v) for k, v in groups.items()
    }
    text = filled(table, body)
    body.offset_table = table.all()
    assert text == body.encode()


async def test_many_changes_are_encoded_in_turns(tmp_path, clock):
    """The text of 10,000 topics was made at once: a pause of 100 ms."""
    table = offsets(tmp_path, clock)
    for number in range(1_000):
        table.commit("c", "G", f"T{number}", 0, 1)
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await table.save()
        nursery.cancel_scope.cancel()
    assert turns >= 1_000 // PER_TURN
    again = offsets(tmp_path, clock)
    assert again.all() == table.all()


def test_offsets_beyond_the_end_of_their_queue_are_lowered(tmp_path, clock):
    table = OffsetTable(tmp_path, clock, 1)
    table.load()
    for topic, queue_id, offset in (("A", 0, 5), ("A", 1, 9), ("B", 0, 7), ("C", 0, 8)):
        table.commit("test", "g", topic, queue_id, offset)
    ends = {("A", 0): 5, ("A", 1): 6, ("B", 0): 0}
    assert table.clip(lambda topic, queue_id: ends.get((topic, queue_id))) == 2
    assert table.queues("g", "A") == {0: 5, 1: 6}
    assert table.queues("g", "B") == {0: 0}
    assert table.queues("g", "C") == {0: 8}  # nothing is known about it
    assert not table.clip(lambda topic, queue_id: ends.get((topic, queue_id)))
