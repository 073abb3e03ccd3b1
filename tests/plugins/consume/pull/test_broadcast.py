"""Broadcast clients that change to a proxy and back, and groups that read slowly."""

import pytest
import trio

from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq_plugins.consume.pull.broadcast import BroadcastOffsets
from rmq_plugins.consume.pull.slow_readers import SlowReaders
from tests.plugins.consume.pull.test_pull import subscribe

PROXY = {"requestSource": 1, "proxyFrowardClientId": "c@1"}


@pytest.fixture
def filled_caller(caller):
    for _ in range(5):
        caller.send()
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"), model="BROADCASTING")
    return caller


def pull(caller, offset, **more):
    answer = caller.pull(offset=offset, maxMsgNums=1, **more)
    return answer.remark, answer.ext_fields["nextBeginOffset"]


def test_a_client_continues_at_a_proxy_where_it_was_and_comes_back(filled_caller):
    assert pull(filled_caller, 2) == ("FOUND", "3")
    assert pull(filled_caller, 3) == ("FOUND", "4")
    assert pull(filled_caller, -1, **PROXY) == ("OFFSET_RESET", "3")
    assert pull(filled_caller, 3, **PROXY) == ("FOUND", "4")
    assert pull(filled_caller, 4, **PROXY) == ("FOUND", "5")
    assert pull(filled_caller, 0) == ("OFFSET_RESET", "4")
    assert pull(filled_caller, 4) == ("FOUND", "5")


def test_without_the_store_each_pull_is_as_it_asks(make_caller):
    caller = make_caller(enable_broadcast_offset_store=False)
    caller.send()
    assert pull(caller, 0) == ("FOUND", "1")
    assert pull(caller, -1, **PROXY) == ("OFFSET_TOO_SMALL", "0")


def test_a_new_client_begins_where_the_slowest_one_is(filled_caller, clock):
    broadcasts = filled_caller.find(BroadcastOffsets)
    pull(filled_caller, 3)
    pull(filled_caller, 2, **PROXY | {"proxyFrowardClientId": "c@2"})
    broadcasts.scan(("G", "T"))
    offsets = filled_caller.broker.offsets
    assert offsets.query("G@broadcast", "T", 0) == 2
    assert offsets.groups_of("T") == offsets.group_names() == []
    clock.ms += 121_000
    broadcasts.scan(("G", "T"))
    new = PROXY | {"proxyFrowardClientId": "c@3"}
    assert pull(filled_caller, -1, **new) == ("OFFSET_RESET", "3")
    clock.ms += 301_000
    broadcasts.scan(("G", "T"))
    assert pull(filled_caller, -1, **PROXY) == ("OFFSET_RESET", "3")
    offsets.remove_group("G")
    assert offsets.query("G@broadcast", "T", 0) == -1


def test_compiled_pulls_are_recorded_when_the_client_has_asked_for_more(filled_caller):
    broadcasts = filled_caller.find(BroadcastOffsets)
    filled_caller.broker.connection_of = lambda _token: filled_caller.connection
    broadcasts = BroadcastOffsets(filled_caller.broker)
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=-1, max_msg_nums=1,
        sys_flag=0, commit_offset=0, suspend_timeout_millis=0, sub_version=0,
        request_source=1, proxy_froward_client_id="c@1",
    )  # fmt: skip
    for next_offset in (2, 4):
        broadcasts.record_served("G", "T", 0, next_offset, 7)
    assert broadcasts.find_start(header, filled_caller.connection) == 2
    assert not broadcasts.has_proxies("G", "T")
    broadcasts.record_pull(header, filled_caller.connection, 2)
    assert broadcasts.has_proxies("G", "T")


@pytest.mark.parametrize(("threshold", "is_enabled"), [(10_000, True), (10, False)])
async def test_a_group_that_reads_slowly_is_disabled(
    make_caller, threshold, is_enabled
):
    caller = make_caller(
        disable_consume_if_consumer_read_slowly=True,
        consumer_fallbehind_threshold=threshold,
    )
    caller.send()
    caller.send()
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"))
    caller.pull(maxMsgNums=1)
    caller.broker.next_turn = trio.lowlevel.checkpoint
    await caller.find(SlowReaders).disable_slow_groups()
    assert caller.broker.groups.get("G").consume_enable == is_enabled
    assert caller.pull(maxMsgNums=1).code == (0 if is_enabled else 16)


def test_who_has_read_all_is_not_slow(make_caller):
    caller = make_caller(consumer_fallbehind_threshold=0)
    caller.send()
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"))
    caller.pull()
    trio.run(caller.find(SlowReaders).disable_slow_groups)
    assert caller.broker.groups.get("G").consume_enable


def test_pulling_consumers_are_refused(make_caller, make_connection):
    caller = make_caller(reject_pull_consumer_enable=True)
    caller.send()
    assert caller.pull().code == 24
    assert caller.pull(consumerGroup="TOOLS_CONSUMER").code == 0
    subscribe(caller, SubscriptionData(topic="T", sub_string="*"))
    assert caller.pull().code == 0
    assert caller.pull(connection=make_connection()).code == 0
