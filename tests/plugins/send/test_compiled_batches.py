"""Batches: the compiled and the Python handler leave the same bytes.

As test_compiled_sends.py does it, with requests 320 and those whose header says batch.
"""

import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.batch import MAX_ITEMS, BatchItem, encode_batch
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder, decode
from rmq.store.config import FlushDiskType
from tests.plugins.send.frames import (
    ONCE,
    PLAIN,
    assert_equal,
    cut,
    log_that_fails,
    request,
)
from tests.plugins.send.test_compiled_sends import CRC, LIGHT
from tests.plugins.sides import sides

__all__ = ["sides"]

ITEM_PROPERTIES = st.sampled_from(
    [
        "",
        "TAGS\x01A\x02",
        "TAGS\x01A\x02TAGS\x01B\x02",
        "TAGS\x01\x02",
        "KEYS\x01a b\x02UNIQ_KEY\x017F01\x02WAIT\x01false\x02TAGS\x01\u4e2d\x02",
        "DELAY\x013\x02TRAN_MSG\x01true\x02",
        "no pair at all",
        "\x02\x02\x01\x01",
        "q\x01\U0001f600" * 40,
        "INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x0190\x02",
        "__CRC32#\x0100\x02",
    ]
)
BATCH = {**PLAIN, "batch": "true", "properties": "WAIT\x01true\x02"}
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["T", "M", "New", "%RETRY%G", "../x"]),
        "queueId": st.sampled_from(["0", "2", "-1", "99"]),
        "sysFlag": st.sampled_from(["0", "1", "8", "128"]),
        "flag": st.sampled_from(["0", "-7"]),
        "batch": st.sampled_from(["true", "TRUE", "false", "1"]),
        "reconsumeTimes": st.sampled_from(["0", "2"]),
        "properties": st.sampled_from(
            [
                "WAIT\x01false\x02UNIQ_KEY\x01AB12\x02",
                "UNIQ_KEY\x01\u00e9\x02",
                "UNIQ_KEY\x01" + "7" * 300,
                "DELAY\x011\x02",
                "TRAN_MSG\x01true\x02",
                "TAGS\x01X\x02TAGS\x01Y\x02",
            ]
        ),
    },
)


@st.composite
def bodies(draw):
    items = draw(
        st.lists(
            st.builds(
                BatchItem,
                st.sampled_from([0, 7, -1, 2**31 - 1]),
                st.sampled_from([b"", b"x", b"y" * 128, b"z" * 700]),
                ITEM_PROPERTIES,
            ),
            min_size=1,
            max_size=8,
        )
    )
    data = bytearray(encode_batch(items))
    for _ in range(draw(st.integers(0, 1)) * draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from([len(data), len(data), len(data) - 1]))])


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_leaves_the_same_bytes(sides, data):
    python, compiled = sides(**data.draw(st.sampled_from([{}, CRC, LIGHT, ONCE])))
    stream = b""
    for opaque in range(data.draw(st.integers(1, 12))):
        fields = {**BATCH, **data.draw(HEADERS)}
        stream += request(
            fields,
            opaque=opaque,
            code=data.draw(st.sampled_from([10, 310, 320, 320])),
            body=data.draw(bodies()),
            flag=data.draw(st.sampled_from([0, 0, FLAG_ONEWAY])),
            kind=data.draw(st.sampled_from(["plain", "escaped", "binary"])),
        )
    chunks = cut(data.draw, stream)
    for side in (python, compiled):
        side.play([request(PLAIN, opaque=1_000)])
        side.play(chunks)
    assert_equal(python, compiled)


@pytest.mark.parametrize("kind", ["plain", "escaped", "binary"])
@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize("more", [{}, CRC])
def test_batches_are_served_compiled_and_files_roll(sides, kind, code, more):
    """4,000 records fill several files of log and queues."""
    python, compiled = sides(commit_log_file_size=1 << 16, **more)
    stream = b"".join(
        request(
            {**BATCH, "queueId": str(n % 3)},
            opaque=n,
            code=code,
            kind=kind,
            body=encode_batch(
                [BatchItem(i, bytes([n % 251]) * (i * n % 90), f"TAGS\x01{i}\x02")
                 for i in range(n % 25 + 1)]
            ),
        )
        for n in range(300)
    )  # fmt: skip
    chunks = [stream[i : i + 9_000] for i in range(0, len(stream), 9_000)]
    for side in (python, compiled):
        side.play(chunks)
    assert_equal(python, compiled)
    assert len(python.replies) == 300
    assert python.served == 0
    assert compiled.served > 100


ANSWER_POLLS = 100
"""A long answer takes several: it goes out as the peer reads it."""


def pieces(stream):
    """Cut a stream into parts that fit into the buffer of a socket."""
    return [stream[i : i + 50_000] for i in range(0, len(stream), 50_000)]


def one_batch(side, body, opaque=1, **fields):
    """Send a batch after one that has shown the queue; the reply, and who served it."""
    first = encode_batch([BatchItem(0, b"first", "")])
    side.play([request(BATCH, opaque=-opaque, code=320, body=first)])
    served = side.served
    side.play(pieces(request({**BATCH, **fields}, opaque=opaque, code=320, body=body)))
    for _ in range(ANSWER_POLLS):
        side.play([] if opaque in side.replies else [b""])
    return decode(side.replies[opaque]), side.served - served


ITEM = encode_batch([BatchItem(0, b"body", "TAGS\x01A\x02")])


@pytest.mark.parametrize(
    "body",
    [
        ITEM + ITEM[:-1],
        ITEM[:-1],
        ITEM + b"\x00",
        struct.pack(">i", len(ITEM) + 1) + ITEM[4:],
        struct.pack(">i", 2 * len(ITEM)) + ITEM[4:] + ITEM,
        ITEM[:16] + b"\x7f\xff\xff\xff" + ITEM[20:],
        ITEM[:16] + b"\xff\xff\xff\xff" + ITEM[20:],
        ITEM[:-9] + b"\x7f\xff" + ITEM[-7:],
        ITEM[:-9] + b"\xff\xff" + ITEM[-7:],
        ITEM[:-2] + b"\xff\x02",
        b"T" + ITEM,
        bytes(21),
    ],
    ids=["cut", "cut first", "longer", "size", "size of two", "huge body",
         "negative body", "huge properties", "negative properties", "not UTF-8",
         "topic first", "shorter than an item"],
)  # fmt: skip
def test_a_batch_with_a_wrong_item_is_refused_as_a_whole(sides, body):
    python, compiled = sides()
    for side in (python, compiled):
        reply, served = one_batch(side, body)
        assert (reply.code, served) == (13, 0)
        assert "illegal" in reply.remark
        assert side.store.queues.get("T", 1).next_offset == 1
    assert_equal(python, compiled)


def test_an_item_too_large_for_a_message_is_refused(sides):
    for side in sides(max_message_size=2_000):
        body = encode_batch([BatchItem(0, b"x", ""), BatchItem(0, b"y" * 1_990, "")])
        reply, served = one_batch(side, body)
        assert (reply.code, served) == (13, 0)
        assert side.store.queues.get("T", 1).next_offset == 1


@pytest.mark.slow
def test_a_hundred_thousand_empty_messages(sides):
    python, compiled = sides(
        max_message_size=4 << 20, commit_log_file_size=64 << 20, queue_file_size=4 << 20
    )
    body = encode_batch([BatchItem(0, b"", "")]) * 100_000
    for side in (python, compiled):
        reply, _ = one_batch(side, body)
        ids = reply.ext_fields["msgId"].split(",")
        assert (reply.code, len(ids), len(set(ids))) == (0, 100_000, 100_000)
        assert side.store.queues.get("T", 1).next_offset == 100_001
    assert_equal(python, compiled)


@pytest.mark.slow
def test_a_body_of_4_mib_is_taken_and_one_byte_more_is_not(sides):
    python, compiled = sides(max_message_size=4 << 20, commit_log_file_size=64 << 20)
    for side in (python, compiled):
        side.play([request(PLAIN, opaque=1_000)])
        side.store.log.allocate_ahead()  # as the worker of a broker does
        body = encode_batch([BatchItem(0, b"x" * ((4 << 20) - 22), "")])
        reply, served = one_batch(side, body)
        assert (reply.code, served) == (0, side is compiled)
        reply, served = one_batch(side, body + ITEM, opaque=2)
        assert (reply.code, served) == (13, 0)
    assert_equal(python, compiled)


@pytest.mark.slow
def test_more_messages_than_an_answer_can_name_are_refused(sides):
    size = 22 * (MAX_ITEMS + 1)
    for side in sides(max_message_size=size, commit_log_file_size=64 << 20):
        body = encode_batch([BatchItem(0, b"", "")]) * (MAX_ITEMS + 1)
        reply, served = one_batch(side, body)
        assert (reply.code, served) == (13, 0)
        assert "more than 200000 messages" in reply.remark


def test_sync_flush_holds_the_answer_until_the_last_message_is_durable(sides):
    _, compiled = sides(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, queue_file_size=20 * 1000
    )
    body = encode_batch([BatchItem(0, b"x", "")]) * 40
    compiled.play([request(BATCH, opaque=0, code=320, body=body)])
    compiled.store.durability.flush()
    compiled.replies.clear()
    at_once = {**BATCH, "properties": "WAIT\x01false\x02"}
    compiled.play(
        [
            request(BATCH, opaque=1, code=320, body=body)
            + request(at_once, opaque=2, code=320, body=body)
        ]
    )
    assert compiled.served == 2
    assert set(compiled.replies) == {2}
    compiled.store.durability.flush()
    compiled.play([b""])
    assert set(compiled.replies) == {1, 2}
    [reply] = FrameDecoder().feed(compiled.replies[1])
    assert len(reply.ext_fields["msgId"].split(",")) == 40


MANY = 2_900
"""Three batches of so many are more than a poll stages."""


def many_at_once(side):
    """Have one poll find three batches and a message; what it finds.

    The buffer of the socket takes all of them; their answers would not fit.
    """
    side.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    batch = encode_batch([BatchItem(0, b"", "")]) * MANY
    found = []
    for queue_id in range(3):
        side.play([request({**PLAIN, "queueId": str(queue_id)}, opaque=-1 - queue_id)])
        side.store.queues.get("T", queue_id).reserve(MANY + 2)
        fields = {**BATCH, "queueId": str(queue_id)}
        found.append(
            request(fields, opaque=queue_id, code=320, body=batch, flag=FLAG_ONEWAY)
        )
    return b"".join([*found, request(PLAIN, opaque=3)])


ROOM = {
    "commit_log_file_size": 16 << 20,
    "queue_file_size": 20 * 9_000,
    "max_message_size": 1 << 20,
}


def test_more_messages_than_a_poll_stages_are_written_in_between(sides):
    python, compiled = sides(**ROOM)
    for side in (python, compiled):
        frames = many_at_once(side)
        before = side.served
        side.play([frames])
        assert side.served == before + 4 * (side is compiled)
        ends = [side.store.queues.get("T", n).next_offset for n in range(3)]
        assert ends == [MANY + 1, MANY + 2, MANY + 1]
    assert_equal(python, compiled)


@pytest.mark.usefixtures("without_ring")
def test_a_write_that_fails_in_between_answers_nobody(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH, **ROOM)
    frames = many_at_once(compiled)
    end = compiled.store.log.end_offset
    compiled.peer.sendall(frames)
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    assert not compiled.store.log.is_writable
    kinds = [kind for kind, _, _ in compiled.reactor.take_events()]
    assert EventKind.NOT_STORED in kinds
    assert compiled.store.log.end_offset == end
    for queue_id in range(3):
        assert compiled.store.queues.get("T", queue_id).next_offset == 1
    compiled.collect()
    assert 3 not in compiled.replies


def test_a_batch_for_light_queues_is_left_to_python(sides):
    python, compiled = sides(**LIGHT)
    light = BatchItem(0, b"x", "INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    plain = BatchItem(0, b"x", "TAGS\x01A\x02")
    for side in (python, compiled):
        for n, items in enumerate([[plain], [plain], [plain, light], [plain]]):
            side.play([request(BATCH, opaque=n, code=320, body=encode_batch(items))])
    assert_equal(python, compiled)
    assert compiled.served == 2
    assert decode(compiled.replies[2]).code == 13
