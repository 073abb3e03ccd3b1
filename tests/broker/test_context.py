"""What a plugin may ask of a broker: publishing messages, facts, keys."""

from types import SimpleNamespace

import pytest

from rmq.core.errors import RequestRejected
from rmq.plugin import PERM_READ, PERM_WRITE, PutStatus, ResponseCode, hookimpl
from rmq.protocol.records import decode_stored
from tests.plugins.conftest import (
    broker,
    clock,
    make_caller_of,
    open_broker,
)

__all__ = ["broker", "clock", "make_caller_of", "open_broker"]


@pytest.fixture
def reports(broker):
    broker.topics.ensure("Reports", queues=2, perm=PERM_READ | PERM_WRITE)
    return broker


def stored(broker, queue_id):
    return decode_stored(broker.store.reads.get("Reports", queue_id, 0, 32).body)


def test_a_message_is_published_with_its_properties(reports, clock):
    result = reports.publish(
        "Reports", b"good", queue_id=1, tags="a", keys="k", properties={"x": "y"}
    )
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 0)
    (record,) = stored(reports, 1)
    assert (record.body, record.born_timestamp) == (b"good", clock.ms)
    assert record.properties == {"TAGS": "a", "KEYS": "k", "x": "y"}
    assert record.born_host == reports.store_host


def test_queues_take_turns(reports):
    for number in range(4):
        reports.publish("Reports", b"%d" % number)
    assert [record.body for record in stored(reports, 0)] == [b"0", b"2"]
    assert [record.body for record in stored(reports, 1)] == [b"1", b"3"]


def test_a_pull_that_waits_gets_what_is_published(reports, make_caller_of):
    caller = make_caller_of(reports)
    waits = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
    assert caller.pull("Reports", queueId=1, **waits) is None
    reports.publish("Reports", b"news", queue_id=1)
    (answer,) = caller.connection.sent
    assert decode_stored(answer.body)[0].body == b"news"


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, "broker.topics.ensure"),
        ({"queue_id": 2}, ResponseCode.SYSTEM_ERROR, "has 2 queues"),
        ({"queue_id": -1}, ResponseCode.SYSTEM_ERROR, "has 2 queues"),
    ],
)
def test_a_wrong_place_is_refused(reports, more, code, remark):
    with pytest.raises(RequestRejected, match=remark) as caught:
        reports.publish(**{"topic": "Reports", "body": b"x", **more})
    assert caught.value.code == code
    assert reports.store.log.end_offset == 0


def test_a_topic_that_may_only_be_read_is_refused(reports):
    reports.topics.ensure("Old", queues=1, perm=PERM_READ)
    with pytest.raises(RequestRejected, match=r"topic\[Old\] sending message is forb"):
        reports.publish("Old", b"x")


def test_facts_of_a_plugin_that_is_not_loaded_are_none(reports, make_caller_of):
    def rmq_setup(register):
        register.facts("weather", lambda: {"sun": True})

    plugin = SimpleNamespace(rmq_setup=hookimpl(rmq_setup))
    make_caller_of(reports, plugins={"weather": plugin})
    assert reports.facts("weather") == {"sun": True}
    assert reports.facts("tides") is None


def test_listeners_hear_which_keys_changed(reports, make_caller_of):
    heard = []
    plugin = SimpleNamespace(
        rmq_setup=hookimpl(lambda register: register.on_config(heard.append))
    )
    make_caller_of(reports, plugins={"listening": plugin})
    reports.config_changed({"fileReservedTime"})
    assert heard == [{"fileReservedTime"}]
