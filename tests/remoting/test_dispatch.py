"""Dispatch over a real socket: what a handler returns or raises reaches the caller."""

import struct
import threading

import pytest
import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.core.errors import PluginError, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE
from rmq.protocol.frames import MAX_FRAME_SIZE, encode
from rmq.remoting.dispatch import LONG_BODY, HandlerTable, Held
from rmq.remoting.overload import OVERLOAD_REMARK
from rmq.store.commit_log import CommitLog
from rmq.testing import RawClient, running_node
from tests.waiting import until

CODE = 10
PROBE = 99


def oneway(request, opaque=0):
    request.flag |= FLAG_ONEWAY
    request.opaque = opaque
    return encode(request)


def numbered(request, opaque):
    request.opaque = opaque
    return encode(request)


def frame(header, body=b""):
    """A frame with this JSON header, right or wrong."""
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


class Gate:
    """A coroutine handler that says how many of its calls run."""

    def __init__(self):
        self.opened = trio.Event()
        self.running = 0
        self.most_running = 0
        self.started = []

    def handle(self, request, connection):
        return self._work(request)

    async def _work(self, request):
        self.started.append(request.opaque)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.opened.wait()
        finally:
            self.running -= 1
        return request.reply(remark="done")


def probe(request, connection):
    return request.reply(remark="probe")


@pytest.fixture
async def server(serving):
    async with serving() as served:
        served.register(PROBE, probe)
        yield served


@pytest.fixture
async def client(server):
    async with server.client() as client:
        yield client


async def only_the_probe_is_answered(client, request_of):
    """Frames of a connection are answered in order; nothing came before this."""
    assert (await client.call(request_of(PROBE))).remark == "probe"
    assert client.pushed == []


# -- codes


async def test_an_unknown_code_is_answered_with_code_3(server, client, request_of):
    answer = await client.call(request_of(CODE))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED == 3
    assert answer.remark == f" request type {CODE} not supported"


async def test_an_unknown_oneway_code_is_not_answered(server, client, request_of):
    await client.send_bytes(oneway(request_of(CODE)))
    await only_the_probe_is_answered(client, request_of)


def test_a_code_is_served_by_one_handler_only():
    table = HandlerTable()
    table.register(CODE, probe)
    assert CODE in table
    assert PROBE not in table
    with pytest.raises(PluginError, match=f"request code {CODE} is taken"):
        table.register(CODE, probe)


# -- results


async def test_a_handler_may_answer_later(server, client, request_of):
    kept = []
    server.register(CODE, lambda request, at: kept.append((request, at)))
    await client.send_bytes(numbered(request_of(CODE), 5))
    await only_the_probe_is_answered(client, request_of)
    ((request, connection),) = kept
    connection.send_nowait(request.reply(remark="late"))
    await client.call(request_of(PROBE))
    (late,) = client.pushed
    assert (late.opaque, late.remark, late.is_response) == (5, "late", True)


async def test_a_coroutine_may_return_more_work(server, client, request_of):
    async def first(request):
        await trio.lowlevel.checkpoint()
        return second(request)

    async def second(request):
        return request.reply(remark="second", body=request.body)

    server.register(CODE, lambda request, connection: first(request))
    answer = await client.call(request_of(CODE, b"body"))
    assert (answer.remark, answer.body) == ("second", b"body")


@pytest.mark.parametrize("size", [LONG_BODY - 1, LONG_BODY, 3 * LONG_BODY])
async def test_a_long_answer_arrives_whole_and_before_later_ones(
    server, client, request_of, size
):
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def work(request):
        return request.reply(remark="long", body=body)

    server.register(CODE, lambda request, connection: work(request))
    answer = await client.call(request_of(CODE))
    assert (answer.remark, answer.body) == ("long", body)
    assert (await client.call(request_of(PROBE))).remark == "probe"


@pytest.mark.parametrize("kind", ["answer", "error", "coroutine", "held"])
async def test_a_oneway_request_is_handled_and_never_answered(
    server, client, request_of, kind
):
    seen = []

    def handle(request, connection):
        seen.append(request.body)
        answer = request.reply(remark="unwanted")
        if kind == "error":
            raise RequestRejected(1, "unwanted")
        if kind == "coroutine":
            return later(answer)
        if kind == "held":
            return Held(answer, 1, answer, 1_000)
        return answer

    async def later(answer):
        return answer

    server.register(CODE, handle)
    await client.send_bytes(oneway(request_of(CODE, b"x")))
    await only_the_probe_is_answered(client, request_of)
    with trio.fail_after(5):
        is_drained = await server.server.drain(5)
        assert is_drained
    await only_the_probe_is_answered(client, request_of)
    assert seen == [b"x"]
    assert server.server.statistics().reactor.held == 0


async def test_an_answer_too_large_for_a_frame_becomes_an_error(
    server, client, request_of
):
    server.register(CODE, lambda request, at: request.reply(body=bytes(MAX_FRAME_SIZE)))
    answer = await client.call(request_of(CODE))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"more than {MAX_FRAME_SIZE}" in answer.remark


# -- errors


async def test_a_refusal_reaches_the_caller_word_for_word(server, client, request_of):
    def refuse(request, connection):
        raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, "no such topic: ü")

    async def refuse_later(request):
        await trio.lowlevel.checkpoint()
        refuse(request, None)

    server.register(CODE, refuse)
    server.register(CODE + 1, lambda request, connection: refuse_later(request))
    for code in (CODE, CODE + 1):
        answer = await client.call(request_of(code))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == "no such topic: ü"
    statistics = server.server.statistics()
    assert (statistics.requests, statistics.failures) == (2, 0)


async def test_a_fault_of_a_handler_is_answered_logged_and_survived(
    server, client, request_of, caplog
):
    def fail(request, connection):
        raise KeyError("queueId")

    async def fail_later():
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError("by zero")

    server.register(CODE, fail)
    server.register(CODE + 1, lambda request, connection: fail_later())
    first = await client.call(request_of(CODE, topic="T"))
    second = await client.call(request_of(CODE + 1))
    assert (first.code, first.remark) == (1, "KeyError: 'queueId'")
    assert (second.code, second.remark) == (1, "ZeroDivisionError: by zero")
    assert server.server.statistics().failures == 2
    assert f"request {CODE} of" in caplog.text
    assert "'topic': 'T'" in caplog.text
    assert caplog.records[0].exc_info[0] is KeyError


async def test_a_guard_refuses_before_the_handler_is_asked(server, client, request_of):
    asked = []

    def guard(request, connection):
        if request.ext_fields.get("key") != "right":
            raise RequestRejected(ResponseCode.NO_PERMISSION, "wrong key")

    def handle(request, connection):
        asked.append(request.ext_fields["key"])
        return request.reply()

    server.handlers.guards.append(guard)
    server.register(CODE, handle)
    refused = await client.call(request_of(CODE, key="wrong"))
    assert (refused.code, refused.remark) == (16, "wrong key")
    assert (await client.call(request_of(CODE, key="right"))).code == 0
    assert asked == ["right"]


# -- limits


async def test_coroutines_of_a_code_run_up_to_its_limit(server, client, request_of):
    gate, free = Gate(), Gate()
    free.opened.set()
    server.register(CODE, gate.handle, max_running=2, max_waiting=3)
    server.register(CODE + 1, free.handle, max_running=2, max_waiting=3)
    await client.send_bytes(
        b"".join(numbered(request_of(CODE), opaque) for opaque in range(100, 107))
    )
    await until(lambda: gate.running == 2)
    # another code has limits of its own
    assert (await client.call(request_of(CODE + 1))).remark == "done"
    refused = [c for c in client.pushed if c.code == ResponseCode.SYSTEM_BUSY]
    assert [c.opaque for c in refused] == [105, 106], "5 fit: 2 run and 3 wait"
    assert {c.remark for c in refused} == {OVERLOAD_REMARK}
    assert server.server.statistics().running == 5
    assert server.server.waiting_counts("main")[CODE] == 3
    assert not server.server.waiting_counts("fast")
    gate.opened.set()
    is_drained = await server.server.drain(5)
    assert is_drained
    assert server.server.waiting_counts("main")[CODE] == 0
    await client.call(request_of(PROBE))
    done = [c.opaque for c in client.pushed if c.remark == "done"]
    assert sorted(done) == [100, 101, 102, 103, 104]
    assert gate.most_running == 2
    # and there is room again
    assert (await client.call(request_of(CODE))).remark == "done"


async def test_an_overloaded_oneway_request_is_dropped(server, client, request_of):
    gate = Gate()
    server.register(CODE, gate.handle, max_running=1, max_waiting=0)
    await client.send_bytes(numbered(request_of(CODE), 1))
    await client.send_bytes(oneway(request_of(CODE), 2))
    await only_the_probe_is_answered(client, request_of)
    gate.opened.set()
    is_drained = await server.server.drain(5)
    assert is_drained
    assert gate.started == [1]


async def test_a_drain_ends_with_its_time(server, client, request_of, mock_clock):
    gate = Gate()
    server.register(CODE, gate.handle)
    await client.send_bytes(numbered(request_of(CODE), 1))
    await until(lambda: gate.running)
    outcome = []

    async def drain():
        outcome.append(await server.server.drain(3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(drain)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert not outcome
        mock_clock.jump(3)
    assert outcome == [False]
    gate.opened.set()
    is_drained = await server.server.drain(3)
    assert is_drained


# -- held answers


async def test_a_held_answer_waits_for_its_offset(server, client, request_of):
    watermark = Watermark()
    server.server.attach_watermark(watermark, 60_000)
    server.register(
        CODE,
        lambda request, at: Held(
            request.reply(remark="durable"), 100, request.reply(1, "slow"), 60_000
        ),
    )
    await client.send_bytes(numbered(request_of(CODE), 7))
    await only_the_probe_is_answered(client, request_of)
    assert server.server.statistics().reactor.held == 1
    watermark.advance(99)
    await only_the_probe_is_answered(client, request_of)
    watermark.advance(100)
    while not client.pushed:
        await client.call(request_of(PROBE))
    (answer,) = client.pushed
    assert (answer.opaque, answer.remark) == (7, "durable")
    server.server.detach_watermark()


async def test_a_held_answer_that_comes_too_late_is_told_so(
    server, client, request_of, mock_clock
):
    server.register(
        CODE,
        lambda request, at: Held(
            request.reply(remark="durable"), 100, request.reply(10, "slow"), 2_000
        ),
    )
    server.server.attach_watermark(Watermark(), 60_000)
    await client.send_bytes(numbered(request_of(CODE), 7))
    await only_the_probe_is_answered(client, request_of)
    mock_clock.jump(1.9)
    await only_the_probe_is_answered(client, request_of)
    mock_clock.jump(0.7)
    while not client.pushed:
        await client.call(request_of(PROBE))
    (answer,) = client.pushed
    assert (answer.opaque, answer.code, answer.remark) == (7, 10, "slow")
    server.server.detach_watermark()


@pytest.fixture
def disk(monkeypatch):
    """An event: while it is cleared the disk takes no log."""
    works = threading.Event()
    works.set()
    flush = CommitLog.flush

    def waiting(log, durable):
        assert works.wait(30)
        return flush(log, durable)

    monkeypatch.setattr(CommitLog, "flush", waiting)
    yield works
    works.set()


@pytest.mark.usefixtures("without_ring")  # with one its writer waits for the disk
async def test_a_compiled_answer_that_the_disk_delays_is_told_so(
    tmp_path, request_of, mock_clock, disk
):
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "3000"}
    async with (
        running_node(tmp_path, settings) as node,
        RawClient.connect(node.address) as client,
    ):
        sent, before = 0, -1
        while node.server.statistics().requests != before:
            before = node.server.statistics().requests
            assert (await client.call(send(request_of))).code == 0
            sent += 1
            assert sent < 100, "the compiled handler has not learned these headers"
        disk.clear()
        await client.send_bytes(numbered(send(request_of), 70))
        while not node.server.statistics().reactor.held:
            await trio.lowlevel.checkpoint()
        assert node.server.statistics().requests == before
        mock_clock.jump(2.9)
        assert (
            await client.call(request_of(9_999))
        ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert not client.pushed
        mock_clock.jump(0.7)
        while not client.pushed:
            await client.call(request_of(9_999))
        (answer,) = client.pushed
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert (answer.opaque, answer.ext_fields["queueOffset"]) == (70, str(sent))
        disk.set()


def send(request_of):
    return request_of(
        10,
        b"body",
        producerGroup="PG",
        topic="T",
        defaultTopic="TBW102",
        defaultTopicQueueNums=1,
        queueId=0,
        sysFlag=0,
        bornTimestamp=1_795_230_112_758,
        flag=0,
        properties="UNIQ_KEY\x017F01\x02WAIT\x01true\x02",
        reconsumeTimes=0,
        unitMode="false",
        batch="false",
    )


@pytest.mark.slow
async def test_answers_that_wait_for_the_disk_are_bounded(server, client, request_of):
    body = bytes(15 << 20)
    server.server.attach_watermark(Watermark(), 60_000)
    server.register(
        CODE,
        lambda request, at: Held(
            request.reply(body=body), 100, request.reply(), 60_000
        ),
    )
    answers = 0
    while not client.pushed:
        answers += 1
        await client.send_bytes(numbered(request_of(CODE), 100 + answers))
        await client.call(request_of(PROBE))
    (busy,) = client.pushed
    assert (busy.opaque, busy.code) == (100 + answers, ResponseCode.SYSTEM_BUSY)
    assert answers == 256 // 15 + 1
    server.server.detach_watermark()


# -- frames that cannot be decoded


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":"ten","flag":0,"opaque":77}',
        b'{"code":10,"opaque": "77","flag":',
        b'\xff\xfe"opaque":77',
    ],
)
async def test_a_wrecked_header_with_a_number_is_answered(
    server, client, request_of, header
):
    await client.send_bytes(frame(header))
    assert (await client.call(request_of(PROBE))).remark == "probe"
    (answer,) = client.pushed
    assert (answer.opaque, answer.code) == (77, ResponseCode.SYSTEM_ERROR)
    assert answer.remark


@pytest.mark.parametrize(
    "header", [b"", b"{", b'{"opaque":9999999999,', b"\0" * 30], ids=repr
)
async def test_a_wrecked_header_without_a_number_closes(server, client, header):
    await client.send_bytes(frame(header))
    assert await client.stream.receive_some(100) == b""
    await until(lambda: server.closed)
    assert server.reasons()[0].startswith("undecodable header: ")


async def test_an_answer_to_nothing_is_passed_over(server, client, request_of):
    stray = request_of(0)
    stray.flag |= FLAG_RESPONSE
    await client.send_bytes(numbered(stray, 12_345))
    await only_the_probe_is_answered(client, request_of)
    assert server.server.statistics().requests == 1
