"""A signed request: how long the check takes beside reading its header."""

import pytest

from rmq._fastpath.reactor.grants import Grants, SignedTemplates
from rmq.access.signature import sign
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

HERE = b"\x7f\x00\x00\x01"
PROPERTIES = (
    "KEYS\x01key0000000000\x02UNIQ_KEY\x017F000001000A18B4AAC200000000000A\x02"
    "WAIT\x01true\x02TAGS\x01TagA\x02"
)
FIELDS = {
    "a": "BenchGroup", "b": "BenchTopic", "c": "TBW102", "d": "8", "e": "0", "f": "0",
    "g": "1795230112758", "h": "0", "i": PROPERTIES, "j": "0", "k": "false",
    "l": "16", "m": "false",
}  # fmt: skip


@pytest.mark.parametrize("size", [128, 1024])
def bench_a_signed_send(benchmark, size):
    request = Command(310, dict(FIELDS), b"b" * size)
    request.version = 513
    sign(request, "ann", "secret")
    frame = encode(request)
    grants = Grants({310: ("b",)})
    grants.register(310, HERE, "ann", "secret", ("BenchTopic",))
    assert grants.allows(frame, HERE)
    benchmark(grants.allows, frame, HERE)


@pytest.mark.parametrize("size", [128, 1024])
def bench_a_signed_send_that_is_recognised(benchmark, size):
    request = Command(310, dict(FIELDS), b"b" * size)
    request.version = 513
    sign(request, "ann", "secret")
    frame = encode(request)
    grants = Grants({310: ("b",)})
    grants.register(310, HERE, "ann", "secret", ("BenchTopic",))
    templates = SignedTemplates(grants, ("b", "e", "g", "i"))
    templates.allows(frame, HERE)
    assert templates.allows(frame, HERE) == (True, True)
    benchmark(templates.allows, frame, HERE)
