"""Messages out: what consumers got, the same number in every place that shows it."""

import asyncio
import json
import re

import pytest
import trio

from rmq.cli.server.greeting import stop_line
from rmq.client import Consumer, Message, Producer
from rmq.console.history import TrafficHistory
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored
from rmq.testing import BrokerThread
from tests.plugins.consume.pop.popping import Popping


def out(caller):
    return caller.broker.statistics.messages_out()


def own_reads(caller):
    return caller.broker.store.statistics().own_read_messages


def test_pulls_count_what_they_return(caller):
    for number in range(6):
        caller.send(properties=f"TAGS\x01{'ab'[number % 2]}\x02")
    assert len(decode_stored(caller.pull().body)) == 6
    assert len(decode_stored(caller.pull(subscription="a").body)) == 3
    caller.pull(offset=6)
    assert (out(caller), own_reads(caller)) == (9, 0)


def test_a_filter_that_reads_more_counts_what_matches(make_caller):
    caller = make_caller(enable_property_filter=True)
    caller.topic("T")
    for number in range(20):
        caller.send(properties=f"n\x01{number}\x02")
    answer = caller.pull(subscription="n >= 17", expressionType="SQL92")
    assert len(decode_stored(answer.body)) == 3
    assert (out(caller), own_reads(caller)) == (3, 0)


def test_pops_count_what_they_return(caller, clock):
    for number in range(5):
        caller.send(body=b"%d" % number)
    popping = Popping(caller)
    assert len(popping.pop()) == 5
    assert out(caller) == 5


def test_the_broker_reads_for_itself(caller, clock):
    """Delays, transactions and timers are no messages out."""
    caller.send(properties="DELAY\x011\x02")
    caller.send(properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02", sysFlag=4)
    caller.report_arrivals()
    trio.run(run_services, caller, 0.3)
    clock.ms += 120_000
    trio.run(run_services, caller, 0.3)
    assert out(caller) == 0
    assert own_reads(caller) > 0


async def run_services(caller, seconds):
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for service in caller.services("schedule") + caller.services("transaction"):
                nursery.start_soon(service)


COUNT = 30


async def use(name_server):
    """Send plain, delayed and failing messages; consume by pulls and by pops."""
    async with Producer(name_server) as producer:
        for number in range(COUNT):
            level = 1 if number % 3 else None
            await producer.send(Message("T", b"%d" % number), delay_level=level)
    got = 0
    for group, mode in (("pulls", "pull"), ("pops", "pop")):
        seen = set()
        async with Consumer(
            name_server, group, "T", start="first", mode=mode
        ) as consumer:
            async for message in consumer:
                got += 1
                if message.body == b"3" and message.attempt == 1:
                    await message.nack(delay_s=1)
                    continue
                seen.add(message.body)
                if len(seen) == COUNT:
                    break
    return got


@pytest.mark.timeout(60)
def test_every_place_shows_the_same(tmp_path):
    settings = {"messageDelayLevel": "1s"}
    with BrokerThread(tmp_path, settings) as broker:
        context = broker.node.broker.context
        history = broker.run(make_history, context)
        got = asyncio.run(use(broker.name_server))
        assert got == 2 * COUNT + 2
        shown = broker.run(show, broker, history)
        facts = broker.request(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = json.loads(facts.body)["table"]
        shown["brokerStatus"] = int(table["rmq.messagesOut"])
        assert int(table["rmq.ownReadMessages"]) >= COUNT * 2 // 3
        assert shown == dict.fromkeys(shown, got)


async def make_history(context):
    return TrafficHistory(context)


async def show(broker, history):
    context = broker.node.broker.context
    history.sample()
    overview = await context.monitor.show_view("overview", {}, lambda topic: None)
    by_group = sum(context.statistics.view("GROUP_OUT", f"@{g}").stats_day.sum
                   for g in ("pulls", "pops"))  # fmt: skip
    by_row = filter(None, context.statistics.totals_of("GROUP_GET_NUMS"))
    return {
        "metrics": sum(
            n for key, n in by_row if not key.endswith("@CID_RMQ_SYS_TRANS")
        ),
        "overview": overview["got"],
        "groups": by_group,
        "history": sum(history.outgoing),
        "stop line": int(re.search(r"([\d,]+) out", stop_line(broker.node, 1))[1]),
    }
