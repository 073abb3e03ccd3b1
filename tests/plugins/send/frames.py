"""Frames of sends, for two brokers that must do the same with them."""

import itertools
import json
import os
from contextlib import contextmanager

from hypothesis import strategies as st

from rmq.protocol.command import Command
from rmq.protocol.frames import encode

LONG = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
    "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
    "maxReconsumeTimes", "batch", "bname",
)  # fmt: skip
SHORT = "abcdefghijklmn"
PLAIN = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1795230112758",
    "flag": "0",
    "properties": "KEYS\x01k1 k2\x02UNIQ_KEY\x017F01\x02WAIT\x01true\x02TAGS\x01A\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
}

ONCE = {"broker_options": {"once_window_ms": 5_000}}
"""Each topic stores a key once."""


def request(fields, *, opaque, code=310, body=b"hello", flag=0, kind="plain"):
    """One frame: plain JSON as ours, escaped JSON as Java's, or a binary header."""
    names = LONG if code == 10 else SHORT
    ext = {names[LONG.index(name)]: value for name, value in fields.items()}
    if kind == "escaped":
        header = json.dumps(
            {
                "code": code, "extFields": ext, "flag": flag, "language": "JAVA",
                "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 513,
            }
        ).encode()  # fmt: skip
        head = (4 + len(header) + len(body)).to_bytes(4, "big")
        return head + len(header).to_bytes(4, "big") + header + body
    return encode(
        Command(
            code,
            ext,
            body,
            opaque=opaque,
            flag=flag,
            language="JAVA" if kind == "plain" else 0,
            version=513,
            serialize_type=kind == "binary",
        )
    )


def assert_equal(python, compiled):
    assert compiled.replies == python.replies
    assert compiled.store.log.end_offset == python.store.log.end_offset
    assert compiled.files() == python.files()
    for side in (python, compiled):
        assert side.checked_end() == side.store.log.end_offset


def cut(draw, data):
    """Cut a stream at a few places."""
    places = draw(st.lists(st.integers(0, len(data)), max_size=6))
    ends = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@contextmanager
def log_that_fails(side):
    """Give the log's file a descriptor that cannot write; only pwrite notices."""
    file = side.store.log.file
    saved, read_only = os.dup(file.fd), os.open(file.path, os.O_RDONLY)
    os.dup2(read_only, file.fd)
    try:
        yield
    finally:
        os.dup2(saved, file.fd)
        os.close(saved)
        os.close(read_only)
