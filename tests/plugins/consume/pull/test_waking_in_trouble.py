"""Pulls wake while something goes wrong: none is lost, doubled or out of order."""

import time
from itertools import pairwise
from types import ModuleType

import pytest
import trio

import rmq_plugins.consume.pull.native
from rmq.plugin import hookimpl
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from rmq.testing import RawClient, running_node
from tests.plugins.consume.pull.test_compiled_held_pulls import (
    SUSPEND_MS,
    WAITS,
    Waiter,
)
from tests.plugins.consume.pull.test_compiled_pulls import request
from tests.plugins.sides import LOOP_EPOCH_MS, sides

__all__ = ["sides"]

DAY_MS = 86_400_000
PULLS = 20_000
"""More than one turn answers."""


@pytest.fixture
def pair(sides):
    waiters = [Waiter(side) for side in sides()]
    for waiter in waiters:
        waiter.warm()
    return waiters


def codes_of(waiter, opaques):
    """Return the codes of these answers."""
    answers = waiter.answers()
    return [FrameDecoder().feed(answers[opaque])[0].code for opaque in opaques]


def collect(waiter, count):
    """Have the socket take so many answers, which it does not at once."""
    for _ in range(1_000):
        if len(waiter.side.replies) >= count:
            break
        waiter.side.play([b""])


def many_pulls(waiter, count, **fields):
    """Send pulls of one place together; return their opaque numbers."""
    limits = {"total": count, "per_connection": count, "per_view": count}
    waiter.compiled.set_limits(**limits, suspend_ms=SUSPEND_MS)
    wanted = {**WAITS, "queueOffset": "4", **fields}
    opaques = range(10_000, 10_000 + count)
    frames = [request(wanted, opaque=opaque) for opaque in opaques]
    for first in range(0, count, 500):
        waiter.side.play([b"".join(frames[first : first + 500])])
    assert waiter.compiled.waiting == count
    return opaques


# -- a stop, a disk and a date


def one_poll(waiter):
    """Have some of many pulls answered."""
    waiter.side.reactor.poll(waiter.side.broker.clock.now_ms() - LOOP_EPOCH_MS)
    assert 0 < waiter.compiled.waiting < PULLS, "a turn answers some of them"


@pytest.mark.slow
def test_a_stop_in_the_middle_answers_each_once(pair):
    waiter = pair[1]
    opaques = many_pulls(waiter, PULLS)
    waiter.side.caller.send("T", b"news", properties="UNIQ_KEY\x01k\x02")
    waiter.side.broker.arrivals.flush()
    one_poll(waiter)
    waiter.pulls.end_all()
    collect(waiter, PULLS)
    assert codes_of(waiter, opaques) == [ResponseCode.SUCCESS] * PULLS
    assert waiter.compiled.waiting == 0
    late = waiter.pull(5)
    assert codes_of(waiter, [late]) == [ResponseCode.SYSTEM_BUSY]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["WRITE_FAILED", "FLUSH_FAILED", "DISK_FULL"])
def test_what_was_durable_is_delivered_after_the_disk_failed_in_the_middle(sides, kind):
    _, side = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    waiter = Waiter(side)
    side.store.durability.flush()
    waiter.warm()
    opaques = many_pulls(waiter, PULLS)
    waiter.send()
    assert waiter.compiled.waiting == PULLS
    side.store.durability.flush()
    one_poll(waiter)
    side.store.durability.refuse(RefusalKind[kind], "no more")
    collect(waiter, PULLS)
    assert codes_of(waiter, opaques) == [ResponseCode.SUCCESS] * PULLS


@pytest.mark.parametrize("days", [-1, 1])
def test_a_date_that_is_set_ends_no_pull(pair, days):
    """The date is not the clock of deadlines; both sides answer the same."""
    for waiter in pair:
        opaque = waiter.pull(4)
        clock = waiter.side.broker.clock
        clock.set_back_ms = -days * DAY_MS
        poll_ms = clock.steady_ms() - LOOP_EPOCH_MS
        waiter.side.reactor.poll(poll_ms)
        waiter.pulls.held.sweep()
        assert waiter.answer(opaque) is None
        clock.set_back_ms = 0
        waiter.send()
        assert waiter.answer(opaque).code == ResponseCode.SUCCESS
    assert pair[0].answers() == pair[1].answers()


def test_after_a_machine_slept_for_a_day_every_pull_ends_once(pair):
    """Deadlines of many ticks are over at once, more than the ring has."""
    for waiter in pair:
        for number in range(100):
            waiter.pull(4, suspendTimeoutMillis=str(1_000 + 50 * number))
        waiter.pass_time(DAY_MS)
        opaque = waiter.pull(4)
        waiter.send()
        assert waiter.answer(opaque).code == ResponseCode.SUCCESS
    assert pair[0].answers() == pair[1].answers()
    assert pair[1].compiled.counts().expired == 100


# -- full tables


def test_a_full_table_of_views_answers_those_that_waited_for_one_that_went(
    pair, monkeypatch
):
    """Each new view sends another one's pulls back to Python, in time or not."""
    monkeypatch.setattr(rmq_plugins.consume.pull.native, "VIEW_LIMIT", 4)
    for waiter in pair:
        opaques = [
            waiter.pull(4, subscription=f"TagA || Tag{number}") for number in range(12)
        ]
        waiter.turn()
        waiter.send(1, tag="TagA")
        assert codes_of(waiter, opaques) == [ResponseCode.SUCCESS] * 12
    assert pair[0].answers() == pair[1].answers()
    assert len(pair[1].pulls.native.table) <= 4


# -- plugins


def module_of(setup):
    """Return a plugin with this function as its hook."""
    module = ModuleType("trouble")
    module.rmq_setup = hookimpl(setup)
    return module


def send_of(number, properties=""):
    fields = {
        "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0",
        "h": "0", "i": f"UNIQ_KEY\x01{number}\x02{properties}", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return Command(RequestCode.SEND_MESSAGE_V2, fields, body=b"%d" % number)


async def follow(client, bodies, count, offset=0):
    """Pull with long polling until so many messages have come."""
    fields = {**WAITS, "subscription": "*", "suspendTimeoutMillis": str(SUSPEND_MS)}
    while len(bodies) < count:
        pull = Command(RequestCode.PULL_MESSAGE, {**fields, "queueOffset": str(offset)})
        answer = await client.call(pull, 10)
        if answer.code == ResponseCode.SUCCESS:
            bodies += [int(each.body) for each in decode_stored(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])


@pytest.mark.slow
@pytest.mark.parametrize("native", ["true", "false"])
async def test_an_interceptor_that_blocks_or_raises_costs_its_own_messages_only(
    tmp_path, native
):
    """Others wait for it, are stored in order, and reach a pull that waits, once."""
    slept = []

    def intercept(message):
        if message.body.endswith(b"3"):
            raise ValueError("not this one")
        slept.append(message.body)
        time.sleep(0.02)  # on the thread that serves

    def rmq_setup(broker, register):
        register.interceptor({"TROUBLE"}, intercept)

    stored, came = [], []
    settings = {"rmq.nativeHandlers": native}
    plugins = {"trouble": module_of(rmq_setup)}
    async with (
        running_node(tmp_path, settings, plugins=plugins) as node,
        RawClient.connect(node.address) as sender,
        RawClient.connect(node.address) as consumer,
        trio.open_nursery() as nursery,
    ):
        await sender.call(send_of(0), 5)
        wanted = 1 + 100 + 9
        nursery.start_soon(follow, consumer, came, wanted)
        for number in range(1, 111):
            trouble = "TROUBLE\x01yes\x02" if number % 11 == 0 else ""
            is_bad = number == 33
            answer = await sender.call(send_of(number, trouble), 5)
            assert (answer.code == 0) != is_bad, (number, answer.remark)
            if answer.code == 0:
                stored.append(number)
    assert came == [0, *stored]
    assert len(slept) == 9


async def send_four(folder, trouble):
    """Send to a broker with this plugin, and wait for the broker's end."""
    async with (
        running_node(folder, plugins={"trouble": trouble}) as node,
        RawClient.connect(node.address) as client,
    ):
        for number in range(4):
            await client.call(send_of(number), 5)
        await trio.sleep(5)


@pytest.mark.slow
async def test_a_hook_that_fails_while_pulls_wake_stops_the_broker_with_a_name(
    tmp_path,
):
    """A listener of arrivals that is left out would let others wait without a sign."""
    arrived = []

    def rmq_setup(broker, register):
        def listener(queues):
            arrived.append(queues)
            if len(arrived) > 1:
                raise ValueError("no")

        register.arrivals(listener)

    with pytest.raises(BaseExceptionGroup) as ended:
        await send_four(tmp_path, module_of(rmq_setup))
    assert ended.group_contains(Exception, match="trouble")
    assert len(arrived) == 2


def test_pulls_wake_in_the_order_in_which_messages_came(pair):
    """Two groups with a pull each; each answer begins where the one before ended."""
    for waiter in pair:
        bodies = {"G": [], "H": []}
        next_offset = dict.fromkeys(bodies, 4)
        for _ in range(50):
            opaques = {g: waiter.pull(next_offset[g], consumerGroup=g) for g in bodies}
            waiter.send(2)
            for group, opaque in opaques.items():
                answer = waiter.answer(opaque)
                records = decode_stored(answer.body)
                bodies[group] += [record.queue_offset for record in records]
                next_offset[group] = int(answer.ext_fields["nextBeginOffset"])
        for offsets in bodies.values():
            assert len(offsets) == 100
            assert all(after == before + 1 for before, after in pairwise(offsets))


@pytest.mark.slow
async def test_a_oneway_message_becomes_durable_for_those_who_wait_for_it(tmp_path):
    """Nobody waits for its answer, so nobody else would hurry the flush."""
    came = []
    async with (
        running_node(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as node,
        RawClient.connect(node.address) as sender,
        RawClient.connect(node.address) as consumer,
    ):
        for number in range(3):
            await sender.call(send_of(number), 5)
        await follow(consumer, came, 3)
        oneway = send_of(3)
        oneway.flag = FLAG_ONEWAY
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, consumer, came, 4, 3)
            await trio.sleep(0.2)
            began = trio.current_time()
            await sender.send_bytes(encode(oneway))
        assert trio.current_time() - began < 0.5
    assert came == [0, 1, 2, 3]
