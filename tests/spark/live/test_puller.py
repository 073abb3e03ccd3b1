"""Windows of pulls against a scripted broker: short answers, loss, filters, breaks."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.encode import RecordEncoder
from rmq.core.errors import PeerError, RemoteProtocolError
from rmq.outgoing.identity import ANONYMOUS
from rmq.outgoing.refused import AnswerRefused
from rmq_spark.live.client import ClientSettings
from rmq_spark.live.plan import Bundle, MessageQueue, QueueRange
from rmq_spark.live.puller import Puller, PullSettings
from rmq_spark.live.reader import read_bundle
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.reader import ReadSettings
from rmq_spark.segments.schema import Column
from rmq_spark.segments.selection import RowBounds, TopicSelection
from tests.spark.fake_broker import CUT, SILENCE, FakeBroker
from tests.spark.stores import BROKER_HOST, CLIENT_HOST

COLUMNS = tuple(
    Column(name, kind, name)
    for name, kind in (
        ("queueId", "int"), ("queueOffset", "bigint"), ("body", "binary"),
        ("brokerName", "string"),
    )
)  # fmt: skip


@cache
def record(queue_id, offset, tag="a"):
    encoder = RecordEncoder(BROKER_HOST)
    properties = b"TAGS\1%b\2" % tag.encode()
    encoder.stage(
        b"T", queue_id, offset, 0, 0, 0, 5, CLIENT_HOST, 6, 0, 0,
        b"%d-%d" % (queue_id, offset), properties,
    )  # fmt: skip
    return encoder.staged_bytes()


class Queues:
    """A script: queues of messages [first, end), given `count` at a time.

    `breaks` has the answers of the n-th pull, instead of messages.
    """

    def __init__(self, ends, first=0, count=32, breaks=(), tags=None):
        self.ends = dict(enumerate(ends))
        self.first = first
        self.count = count
        self.breaks = dict(breaks)
        self.tags = tags
        self.pulls = 0
        self.gaps = set()

    def __call__(self, request):
        number, self.pulls = self.pulls, self.pulls + 1
        if number in self.breaks:
            return self.breaks[number]
        fields = request.ext_fields
        queue_id, at = int(fields["queueId"]), int(fields["queueOffset"])
        count = min(self.count, int(fields["maxMsgNums"]))
        end = self.ends[queue_id]
        bounds = {"minOffset": self.first, "maxOffset": end, "suggestWhichBrokerId": 0}
        if not self.first <= at <= end:
            return 21, bounds | {"nextBeginOffset": self.first}, b""
        if at == end:
            return 19, bounds | {"nextBeginOffset": at}, b""
        if self.tags is not None:
            return self._filtered(queue_id, at, end, count, bounds)
        stop = min(end, at + count)
        body = b"".join(
            record(queue_id, offset)
            for offset in range(at, stop)
            if (queue_id, offset) not in self.gaps
        )
        return 0, bounds | {"nextBeginOffset": stop}, body

    def _filtered(self, queue_id, at, end, count, bounds):
        """Looks at twice as many messages as it may give, like brokers do."""
        found, at_most = [], min(end, at + 2 * count)
        while at < at_most and len(found) < count:
            if self.tags[at % len(self.tags)] != "b":
                found.append(record(queue_id, at, self.tags[at % len(self.tags)]))
            at += 1
        code = 0 if found else 20
        return code, bounds | {"nextBeginOffset": at}, b"".join(found)


def pull(script, ranges, **given):
    """The rows of a bundle: (queue, offset); in the order in which they come."""
    reading = ReadSettings(
        COLUMNS,
        TopicSelection(with_system=True),
        given.pop("rows", RowBounds()),
        skip_corrupt=given.pop("skip_corrupt", False),
    )
    with FakeBroker(script, queues=8) as broker:
        settings = settings_of(broker, **given)
        bundle = Bundle(
            "broker-a",
            tuple(
                QueueRange(MessageQueue("T", "broker-a", number), start, end)
                for number, start, end in ranges
            ),
        )
        rows = []
        for batch in read_bundle(settings, reading, bundle):
            batch.validate(full=True)
            for row in batch.to_pylist():
                place = row["queueId"], row["queueOffset"]
                assert row["body"] == b"%d-%d" % place
                assert row["brokerName"] == "broker-a"
                rows.append(place)
        return rows


def settings_of(
    broker, *, expression="*", batch_size=100, in_flight=4, fails=True, timeout_ms=2_000
):
    live = ClientSettings(
        (broker.address,), ANONYMOUS, TopicSelection(), timeout_ms=timeout_ms, retries=1
    )
    return PullSettings(live, "G", expression, "TAG", batch_size, in_flight, fails)


def all_of(ranges):
    return [(n, offset) for n, start, end in ranges for offset in range(start, end)]


@settings(max_examples=12, deadline=None)
@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 150), st.integers(1, 150)),
        min_size=1, max_size=3, unique_by=lambda r: r[0],
    ),
    count=st.integers(1, 70),
    batch_size=st.integers(1, 100),
    in_flight=st.integers(1, 8),
    breaks=st.dictionaries(
        st.integers(0, 12), st.sampled_from([CUT, (2, {}, b""), (215, {}, b"")]),
        max_size=2,
    ),
)  # fmt: skip
def test_every_row_once_in_order(
    monkeypatched_pauses, ranges, count, batch_size, in_flight, breaks
):
    wanted = [(number, at, at + size) for number, at, size in ranges]
    script = Queues([300] * 4, count=count, breaks=breaks)
    found = pull(script, wanted, batch_size=batch_size, in_flight=in_flight)
    assert found == all_of(wanted)


@pytest.fixture(scope="module")
def monkeypatched_pauses():
    """Pauses of a millisecond, so that many breaks can be tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmq_spark.live.puller.pause_s", lambda _: 0.001)
        yield


def test_windows_are_as_wide_as_the_answers():
    script = Queues([3_000], count=32)
    assert pull(script, [(0, 0, 3_000)], batch_size=1_024, in_flight=64) == all_of(
        [(0, 0, 3_000)]
    )
    assert script.pulls < 3_000 / 32 * 1.5


def test_only_so_many_pulls_are_on_their_way():
    with FakeBroker(Queues([300], count=10)) as broker:
        bundle = Bundle(
            "broker-a", (QueueRange(MessageQueue("T", "broker-a", 0), 0, 300),)
        )
        puller = Puller(settings_of(broker, batch_size=10, in_flight=4), bundle)
        answers = puller.pull_records()
        for _ in range(5):
            next(answers)
        assert len(broker.requests) <= 5 + 4
        puller.close()


def test_removed_messages_are_an_error_or_a_gap():
    with pytest.raises(LostData, match=r"offsets 0 to 40 were removed .* is at 40"):
        pull(Queues([100], first=40), [(0, 0, 100)])
    found = pull(Queues([100], first=40), [(0, 0, 100)], fails=False)
    assert found == all_of([(0, 40, 100)])
    assert pull(Queues([100], first=100), [(0, 0, 50)], fails=False) == []


def test_a_topic_that_was_made_again():
    with pytest.raises(LostData, match="position 100 is after the end 7"):
        pull(Queues([7]), [(0, 50, 100)])
    assert pull(Queues([7]), [(0, 50, 100)], fails=False) == []
    with pytest.raises(LostData, match="position 100 is after the end 60"):
        pull(Queues([60]), [(0, 50, 100)])
    found = pull(Queues([60]), [(0, 50, 100)], fails=False)
    assert found == all_of([(0, 50, 60)])


def test_nothing_matched_is_loss_only_without_a_filter():
    skip = {0: (20, {"nextBeginOffset": 30, "minOffset": 0, "maxOffset": 100}, b"")}
    with pytest.raises(LostData, match="offsets 0 to 30 were removed"):
        pull(Queues([100], breaks=skip), [(0, 0, 100)])
    found = pull(Queues([100], breaks=skip), [(0, 0, 100)], fails=False)
    assert found == all_of([(0, 30, 100)])
    found = pull(Queues([100], breaks=skip), [(0, 0, 100)], expression="a")
    assert found == all_of([(0, 30, 100)])


def test_a_gap_within_an_answer_is_found():
    script = Queues([100])
    script.gaps = {(0, 50), (0, 51)}
    with pytest.raises(LostData, match="offsets 50 to 52 were removed"):
        pull(script, [(0, 0, 100)])
    wanted = [place for place in all_of([(0, 0, 100)]) if place not in script.gaps]
    assert pull(script, [(0, 0, 100)], fails=False) == wanted


@pytest.mark.parametrize("tags", ["ab", "bbbbbbbbbbbbbbbbbbbbba", "b", "abc"])
def test_filters_give_what_matches_and_no_row_twice(tags):
    rows = RowBounds(tags=frozenset("a"))
    found = pull(
        Queues([500], count=8, tags=tags),
        [(0, 3, 450)],
        expression="a",
        batch_size=16,
        rows=rows,
    )
    assert found == [(0, n) for n in range(3, 450) if tags[n % len(tags)] == "a"]


def test_a_reset_of_the_group_is_no_loss(monkeypatched_pauses):
    reset = (21, {"nextBeginOffset": 0, "minOffset": 0, "maxOffset": 100}, b"")
    script = Queues([100], breaks={1: reset, 2: reset})
    assert pull(script, [(0, 0, 100)]) == all_of([(0, 0, 100)])


@pytest.mark.parametrize("code", [1, 16, 23, 24, 25, 26])
def test_refusals_are_errors_at_once(code):
    script = Queues([100], breaks={0: (code, {}, b"")})
    with pytest.raises(AnswerRefused, match=f"{code} .*scripted {code}"):
        pull(script, [(0, 0, 100)])
    assert script.pulls == 1


def test_a_broker_that_stays_busy(monkeypatched_pauses):
    script = Queues([100], breaks=dict.fromkeys(range(99), (2, {}, b"")))
    with pytest.raises(AnswerRefused, match="BUSY"):
        pull(script, [(0, 0, 100)])
    assert script.pulls == 11


def test_a_silent_broker_is_asked_again(monkeypatched_pauses):
    script = Queues([100], breaks={0: SILENCE})
    assert pull(script, [(0, 0, 100)], timeout_ms=50) == all_of([(0, 0, 100)])


def test_no_broker(monkeypatched_pauses):
    broker = FakeBroker(Queues([1]))
    with broker:
        pass
    bundle = Bundle("broker-a", (QueueRange(MessageQueue("T", "broker-a", 0), 0, 1),))
    with pytest.raises(PeerError, match="refuses the connection"):
        list(Puller(settings_of(broker), bundle).pull_records())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((0, {"nextBeginOffset": 0}, b""), "an end of 0"),
        ((0, {"nextBeginOffset": 5_000}, b""), "an end of 5000"),
        ((20, {"nextBeginOffset": 0}, b""), "no next offset"),
        (
            (0, {"nextBeginOffset": 1}, record(0, 7)),
            "returned offset 7 where 0 was expected",
        ),
        ((0, {"nextBeginOffset": 1}, record(0, 0)[:-1]), "is damaged"),
        ((0, {"nextBeginOffset": 1}, record(0, 0) * 2), "returned offset 0 where 1"),
    ],
)
def test_answers_that_make_no_sense(answer, reason):
    code, fields, body = answer
    fields = {"minOffset": 0, "maxOffset": 100, **fields}
    script = Queues([100], breaks={0: (code, fields, body)})
    with pytest.raises((RemoteProtocolError, LostData), match=reason):
        pull(script, [(0, 0, 100)])


@pytest.mark.parametrize("bad", [0, 17, 31])
@pytest.mark.parametrize("at", [0, 3, 4, 84])
def test_a_damaged_record_is_an_error_or_skipped(bad, at, caplog):
    records = [bytearray(record(0, number)) for number in range(32)]
    records[bad][at] ^= 0x55
    fields = {"minOffset": 0, "maxOffset": 40, "nextBeginOffset": 32}
    answer = (0, fields, b"".join(records))
    with pytest.raises(RemoteProtocolError, match="corruptRecords=skip"):
        pull(Queues([40], breaks={0: answer}), [(0, 0, 40)])
    found = pull(Queues([40], breaks={0: answer}), [(0, 0, 40)], skip_corrupt=True)
    assert found == [(0, n) for n in range(40) if n != bad]
    assert "queue 0 of topic T on broker-a from offset 0" in caplog.text
    assert "bytes are skipped" in caplog.text
