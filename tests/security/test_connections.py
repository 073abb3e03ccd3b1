"""Connections that are slow, cut short, silent, or never read."""

import contextlib

import trio

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.testing import RawClient
from tests.connections import connections_of
from tests.waiting import until


async def test_a_conversation_byte_by_byte(scene, requests):
    client = await scene.connect()
    request = requests.send(b"x" * 40, topic="Slow")
    request.opaque = 77
    for byte in encode(request) + encode(Command(9_999, opaque=78)):
        await client.send_bytes(bytes([byte]))
    answers = []
    decoder = FrameDecoder()
    with trio.fail_after(5):
        while len(answers) < 2:
            answers += decoder.feed(await client.stream.receive_some(4096))
    assert [(a.opaque, a.code) for a in answers] == [(77, 0), (78, 3)]
    await scene.assert_unhurt()


async def test_a_reset_at_every_byte(scene, requests):
    frame = encode(requests.send(b"y" * 40, topic="Cut"))
    before = scene.open_count
    for size in range(0, len(frame), 3):
        async with RawClient.connect(scene.node.address) as client:
            await client.send_bytes(frame[:size])
            requests.reset(client)
    await until(lambda: scene.open_count == before)
    assert scene.context.topics.get("Cut") is None
    assert scene.buffer_bytes == 0
    await scene.assert_unhurt()


async def test_a_reset_while_the_answer_is_on_its_way(scene, requests):
    before = scene.open_count
    for _ in range(50):
        async with RawClient.connect(scene.node.address) as client:
            await client.send_bytes(encode(requests.send(b"z", topic="Late")))
            requests.reset(client)
    await until(lambda: scene.open_count == before)
    await scene.assert_unhurt()


async def test_a_frame_has_its_buffer_only_as_its_bytes_come(scene):
    liars = [await scene.connect() for _ in range(100)]
    for liar in liars:
        await liar.send_bytes((16_777_216).to_bytes(4, "big") + b"\0\0\0\x10half")
    await scene.assert_unhurt()
    await until(lambda: scene.buffer_bytes > 0)
    assert scene.buffer_bytes <= 100 * 16 * 1024


async def test_all_buffers_together_have_a_limit(open_scene):
    limit = 1 << 20
    piece = (16_777_216).to_bytes(4, "big") + b"\0\0\0\x10" + b"x" * 300_000
    async with open_scene(**{"rmq.maxBufferBytes": str(limit)}) as scene:
        for _ in range(20):
            liar = await scene.connect()
            with contextlib.suppress(trio.BrokenResourceError):
                await liar.send_bytes(piece)
            await scene.assert_unhurt()
        assert scene.buffer_bytes <= limit + (1 << 19)
        assert scene.open_count < 20


async def test_a_client_that_never_reads_is_left_behind(open_scene, requests):
    async with open_scene(**{"rmq.maxBufferBytes": str(4 << 20)}) as scene:
        for _ in range(8):
            await scene.friend.call(requests.send(b"m" * 200_000, topic="Big"))
        pull = encode(requests.pull(topic="Big", sysFlag="4"))
        deaf = [await scene.connect() for _ in range(4)]
        for client in deaf:
            with (
                trio.move_on_after(0.2),
                contextlib.suppress(trio.BrokenResourceError),
            ):
                for _ in range(100):
                    await client.send_bytes(pull)
            await scene.assert_unhurt()
        assert scene.buffer_bytes <= 5 << 20


async def test_a_pull_held_for_a_client_that_vanished_is_dropped(scene, requests):
    ends = scene.context.store.reads.max_offset("T", 0)
    for number in range(30):
        async with RawClient.connect(scene.node.address) as client:
            pull = requests.pull(queueOffset=str(ends))
            await client.send_bytes(encode(pull))
            if number % 2:
                await scene.friend.call(Command(9_999))
            requests.reset(client)
    await until(lambda: scene.open_count == 1 + registered(scene))
    await scene.assert_unhurt()


def registered(scene) -> int:
    """Connections of the node to itself: the broker at its name server."""
    return len(connections_of(scene.node.server, "namesrv"))


async def test_a_proxy_header_that_never_ends_is_given_up(scene, monkeypatch):
    monkeypatch.setattr("rmq.remoting.sniffer.HEADER_LIMIT_S", 0.05)
    slow = await scene.connect()
    await slow.send_bytes(b"PROXY TCP4 1.2.3.4")
    with trio.fail_after(5):
        with contextlib.suppress(trio.BrokenResourceError):
            assert await slow.stream.receive_some(10) == b""
    await scene.assert_unhurt()


async def test_one_number_for_many_requests(scene, requests):
    client = await scene.connect()
    request = requests.send(b"same")
    request.opaque = 5
    await client.send_bytes(encode(request) * 50)
    decoder, answers = FrameDecoder(), []
    with trio.fail_after(5):
        while len(answers) < 50:
            answers += decoder.feed(await client.stream.receive_some(1 << 16))
    assert {(each.opaque, each.code) for each in answers} == {(5, 0)}
    places = sorted(int(each.ext_fields["queueOffset"]) for each in answers)
    assert places == list(range(1, 51))


async def test_answers_that_nobody_asked_for(scene):
    client = await scene.connect()
    for opaque in (0, 1, 7, 2**31 - 1, -1):
        await client.send_bytes(encode(Command(0, opaque=opaque, flag=1)))
    assert (
        await client.call(Command(9_999))
    ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    await scene.assert_unhurt()
