"""A topic that is deleted while messages for it wait: it does not come back.

Java stores them into a queue without a topic.
"""

import pytest

from rmq.protocol.codes import RequestCode
from rmq_plugins.schedule.deliver import Deliveries as Delays
from tests.plugins.conftest import records
from tests.plugins.timer.timing import work

KINDS = ["DELAY\x011\x02", "TIMER_DELAY_MS\x013000\x02"]


def delete(caller):
    assert caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0


def deliver_all(caller):
    work(caller, 10_000)
    caller.find(Delays).deliver(1)


@pytest.mark.parametrize("properties", KINDS)
@pytest.mark.parametrize("has_messages", [False, True])
def test_the_topic_stays_deleted(caller, properties, has_messages, caplog):
    if has_messages:
        caller.send()
    assert caller.send(body=b"later", properties=properties).code == 0
    work(caller)
    delete(caller)
    assert caller.broker.topics.get("T") is None
    deliver_all(caller)
    assert caller.broker.topics.get("T") is None
    assert records(caller) == []
    assert "its topic T was deleted" in caplog.text


@pytest.mark.parametrize("properties", KINDS)
def test_a_topic_that_is_created_again_gets_what_waits(caller, properties):
    assert caller.send(body=b"later", properties=properties).code == 0
    work(caller)
    delete(caller)
    caller.topic("T")
    deliver_all(caller)
    assert [record.body for record in records(caller)] == [b"later"]
