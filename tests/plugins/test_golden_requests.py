"""Requests that Java's broker answered, replayed: same code, field names, kind of body.

The recording is one conversation, so one broker answers all of it in order. Requests
of codes that no plugin serves yet are left out, and with them what they would change.
"""

import base64
from typing import NamedTuple

import pytest

from rmq.core.errors import RemoteProtocolError
from rmq.plugin import Held
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode
from rmq.protocol.frames import decode
from tests.golden.recordings import read_rows

RECORDED_MS = 1_795_230_112_758
"""The time of the recording: some of its requests hold times."""

EXCEPTIONS = {
    ("broker", 29): "a batch whose lengths lie is illegal (13), not an exception (1)",
    ("broker", 84): "what a pull wants is not kept for groups without members",
    ("broker", 101): "tags newer than the heartbeat are served unfiltered, not 25",
    ("broker", 146): "907 has the replicas that were refused, too",
    ("broker", 170): "keys that cannot change while the broker runs are refused",
    ("broker", 175): "there is no RocksDB to ask about",
    ("broker", 188): "a client whose clock is wrong gets messages, too",
}


class Exchange(NamedTuple):
    """A request with Java's answer."""

    port: str
    number: int
    request: bytes
    answer: bytes


@pytest.fixture(scope="module")
def exchanges(golden):
    frames = read_rows(golden / "frames" / "probe-broker.jsonl")
    answers = {
        (frame["to"], frame["conn"], frame["header"]["opaque"]): frame["raw"]
        for frame in frames
        if frame["dir"] == "s2c"
    }
    return [
        Exchange(
            frame["to"],
            frame["seq"],
            base64.b64decode(frame["raw"]),
            base64.b64decode(answers.get(_key(frame), "")),
        )
        for frame in frames
        if frame["dir"] == "c2s"
    ]


def _key(frame):
    return frame["to"], frame["conn"], frame["header"]["opaque"]


def _port(exchange):
    return "fast" if exchange.port == "fast" else "main"


def _differences(answer, java):
    """Return what a client could tell apart."""
    found = []
    if answer.code != java.code:
        found.append(f"code {answer.code} ({answer.remark}), Java {java.code}")
    if set(answer.ext_fields) != set(java.ext_fields):
        found.append(f"{sorted(answer.ext_fields)}, Java {sorted(java.ext_fields)}")
    if _shape(answer.body) != _shape(java.body):
        found.append(f"body {_shape(answer.body)}, Java {_shape(java.body)}")
    return found


def _shape(body):
    """Return the names of a JSON document, or whether there are other bytes at all."""
    try:
        document = fastjson.load_json(body)
    except RemoteProtocolError:
        return bool(body)
    return sorted(document) if isinstance(document, dict) else type(document).__name__


def test_java_and_rmq_answer_alike(make_caller, exchanges, clock):
    clock.ms = RECORDED_MS
    caller = make_caller(broker_name="broker-golden")
    caller.broker.topics.delete("T")
    replayed, different = 0, {}
    for exchange in exchanges:
        request = decode(exchange.request)
        if _port(exchange) not in caller.ports.get(request.code, ()):
            continue
        caller.report_arrivals()
        if "pollTime" in request.ext_fields:
            request.ext_fields["pollTime"] = "0"  # nobody waits here
        result = caller.handle(request)
        answer = result.response if isinstance(result, Held) else result
        if not exchange.answer:
            assert request.is_oneway or answer is None
            continue
        replayed += 1
        found = _differences(answer, decode(exchange.answer))
        if found:
            different[exchange.port, exchange.number] = found
    assert replayed > 100
    assert set(different) == set(EXCEPTIONS), different


def test_java_refuses_the_same_codes_on_the_fast_port(caller, exchanges):
    refused = {
        decode(exchange.request).code
        for exchange in exchanges
        if exchange.port == "fast"
        and exchange.answer
        and decode(exchange.answer).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    }
    served = {code for code, ports in caller.ports.items() if "fast" in ports}
    assert refused
    assert not refused & served
