"""The same conversation plain and with TLS: equal answers and files.

Two brokers with compiled handlers and the same clock get the same frames, one of them
in TLS records of a size, cut anywhere. A plain connection and one with TLS must learn
the same templates and hold the same pulls.
"""

import itertools
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fastpath.tls import TlsPeer
from tests.plugins.consume.pull.test_compiled_pulls import PLAIN as PLAIN_PULL
from tests.plugins.consume.pull.test_compiled_pulls import fill, pulls, state, subscribe
from tests.plugins.consume.pull.test_compiled_pulls import request as pull_request
from tests.plugins.send.frames import PLAIN, cut, request
from tests.plugins.send.test_compiled_sends import frames
from tests.plugins.sides import Side

RECORDS = (1, 100, 16_384)
CHUNK = 3_000
"""With a byte in each record it becomes 23 times as long, which a socket takes."""


@pytest.fixture
def pairs(tmp_path):
    """Makes two brokers, plain and with TLS, and closes the two before."""
    made, numbers = [], itertools.count()

    def close_all():
        while made:
            made.pop().close()

    def make(record_size, segment_size=0, **options):
        close_all()
        folder = tmp_path / str(next(numbers))
        encrypt = partial(TlsPeer, record_size=record_size, segment_size=segment_size)
        pair = [
            Side(folder / name, compiled=True, encrypt=each, **options)
            for name, each in (("plain", None), ("tls", encrypt))
        ]
        made.extend(pair)
        return pair

    yield make
    close_all()


def in_chunks(stream):
    return [stream[at : at + CHUNK] for at in range(0, len(stream), CHUNK)]


def assert_alike(plain, tls):
    assert state(tls) == state(plain)
    assert tls.store.log.end_offset == plain.store.log.end_offset
    assert tls.files() == plain.files()
    assert tls.reactor.statistics().frames == plain.reactor.statistics().frames
    assert tls.reactor.connections.tls_layer_of(tls.token).data_records > 0


@pytest.mark.parametrize("kind", ["plain", "binary"])
@pytest.mark.parametrize("record", RECORDS)
def test_plain_sends_are_served_compiled(pairs, record, kind):
    plain, tls = pairs(record, commit_log_file_size=1 << 16)
    stream = b"".join(
        request(
            {**PLAIN, "queueId": str(n % 3)},
            opaque=n,
            kind=kind,
            body=bytes([n % 251]) * (n % 300 + 1),
        )
        for n in range(300)
    )
    for side in (plain, tls):
        side.play(in_chunks(stream))
    assert_alike(plain, tls)
    assert len(tls.replies) == 300
    assert min(plain.served, tls.served) > 250


@pytest.mark.parametrize("record", RECORDS)
def test_pulls_are_served_compiled(pairs, record):
    """Answers have up to 60 KB: several records each."""
    pair = pairs(record, commit_log_file_size=1 << 16, max_message_size=65_000)
    for side in pair:
        subscribe(side)
        fill(side, 60)
        fill(side, 8, size=60_000)
        side.play(
            [
                pull_request(
                    {**PLAIN_PULL, "queueId": str(n % 3), "queueOffset": str(n // 3)},
                    opaque=n,
                )
                for n in range(60)
            ]
        )
    assert_alike(*pair)
    assert min(side.served for side in pair) > 50


def without_hold(fields):
    """Return the fields of a pull that is answered at once."""
    flags = fields.get("sysFlag") or ""
    return {**fields, "sysFlag": str(int(flags) & ~2)} if flags.isdigit() else fields


@settings(
    max_examples=settings.default.max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_leaves_the_same_bytes(pairs, data):
    """With pulls that wait, each frame comes alone.

    How many messages wake a pull depends on the frames of one poll.
    """
    record = data.draw(st.sampled_from([*RECORDS, 7, 4_000]))
    segment = data.draw(st.sampled_from([0, 0, 1, 50, 1_000]))
    pair = pairs(record, segment, max_message_size=3_000)
    for side in pair:
        subscribe(side)
        fill(side, 30)
    holds = data.draw(st.booleans())
    opaque = 0
    for _ in range(data.draw(st.integers(1, 4))):
        stream = []
        for each in data.draw(st.lists(frames() | pulls(), min_size=1, max_size=8)):
            opaque += 1
            if "body" in each:
                stream.append(request(opaque=opaque, **each))
            else:
                fields = each["fields"] if holds else without_hold(each["fields"])
                stream.append(pull_request(opaque=opaque, **{**each, "fields": fields}))
        if not holds:
            stream = [b"".join(stream)]
        for part in stream:
            chunks = [each for cuts in cut(data.draw, part) for each in in_chunks(cuts)]
            for side in pair:
                side.play(chunks)
    assert_alike(*pair)
