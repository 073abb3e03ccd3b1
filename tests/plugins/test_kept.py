"""An acknowledged topic or group is in its file: no kill can undo it."""

import errno

import pytest

from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.journal import TopicJournal
from rmq.broker.tables.topics import TopicTable
from rmq.config.broker import BrokerConfig
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.store.config import FlushDiskType
from rmq.testing import ManualClock

TOPIC = {
    "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 4, "perm": 6,
    "writeQueueNums": 4, "topicFilterType": "SINGLE_TAG", "order": "false",
}  # fmt: skip


def on_disk(caller, kind):
    """Read the file as a broker does that was killed and starts again."""
    folder = caller.broker.store.directory.config
    table = kind(folder, ManualClock(), BrokerConfig())
    table.load()
    return table


def test_a_topic_of_a_tool_and_its_end(caller):
    answer = caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == ResponseCode.SUCCESS
    assert on_disk(caller, TopicTable).get("Made") is not None
    caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Made"})
    assert on_disk(caller, TopicTable).get("Made") is None


def test_a_group_of_a_tool_and_its_end(caller):
    body = SubscriptionGroupConfig(group_name="G").encode()
    caller.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert on_disk(caller, GroupTable).get("G") is not None
    caller.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})
    assert on_disk(caller, GroupTable).get("G") is None


@pytest.mark.parametrize("is_back", [False, True])
def test_a_disk_that_does_not_take_it_is_named(caller, monkeypatch, is_back):
    def full(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caller.broker.topics, "write", full)
    monkeypatch.setattr(TopicJournal, "add", lambda *_: None)
    answer = caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not saved: No space left on device" in answer.remark
    if is_back:
        monkeypatch.undo()
        again = caller.call(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        assert again.code == ResponseCode.SUCCESS
    assert (on_disk(caller, TopicTable).get("Made") is not None) is is_back


def test_under_sync_flush_a_send_waits_for_the_topic_that_it_made(make_caller):
    """A power cut kept the message and lost its topic."""
    caller = make_caller(store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    caller.send(topic="Fresh")
    assert on_disk(caller, TopicTable).get("Fresh") is not None
    assert not caller.broker.topics.is_unsaved("Fresh")
