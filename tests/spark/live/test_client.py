"""What the planner asks brokers, against a scripted one."""

import json
from contextlib import closing

import pytest

from rmq.core.errors import PeerError, RemoteProtocolError
from rmq.outgoing.identity import ANONYMOUS
from rmq.outgoing.refused import AnswerRefused
from rmq_spark.live.client import (
    MAX_QUEUES,
    ClientSettings,
    LiveClient,
    ReadAddress,
    read_addresses,
)
from rmq_spark.live.plan import Bounds, MessageQueue
from rmq_spark.segments.selection import TopicSelection
from tests.spark.fake_broker import CUT, FakeBroker

NAMES = {
    "broker": "brokerName",
    "queue_id": "queueId",
    "first": "minOffset",
    "end": "maxOffset",
}
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]


def statistics(queues):
    """The answer to 202 as Java writes it: with objects as names."""
    table = ",".join(
        f"{json.dumps(dict(queue._asdict()))}:{json.dumps(each._asdict())}"
        for queue, each in queues.items()
    )
    for name, java in NAMES.items():
        table = table.replace(f'"{name}"', f'"{java}"')
    return b'{"offsetTable":{' + table.encode() + b"}}"


class Script:
    """Answers of a broker by code, one after another; the last one stays."""

    def __init__(self, **answers):
        self._answers = {int(name[1:]): list(each) for name, each in answers.items()}
        self.codes = []

    def __call__(self, request):
        self.codes.append(request.code)
        left = self._answers[request.code]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if callable(answer):
            answer = answer(request)
        return answer


@pytest.fixture
def ask():
    """Call a method of a client of a scripted broker; the pauses are kept."""
    pauses = []

    def call(script, method, *arguments, **named):
        with FakeBroker(script) as broker:
            topics = TopicSelection(frozenset(["T"]))
            client = LiveClient(
                ClientSettings(
                    (broker.address,), ANONYMOUS, topics, timeout_ms=2_000, retries=2
                ),
                sleep=pauses.append,
            )
            try:
                return getattr(client, method)(*arguments, **named)
            finally:
                client.close()

    call.pauses = pauses
    return call


def test_bounds_of_whole_topics(ask):
    table = {QUEUES[0]: Bounds(3, 9), QUEUES[1]: Bounds(0, 0)}
    script = Script(c202=[(0, {}, statistics(table))])
    assert ask(script, "find_bounds", fails=True) == table
    assert script.codes == [202]


@pytest.mark.parametrize("code", [1, 3])
def test_bounds_queue_by_queue_where_a_broker_does_not_know_202(ask, code):
    script = Script(
        c202=[(code, {}, b"")],
        c31=[lambda r: (0, {"offset": r.ext_fields["queueId"]}, b"")],
        c30=[lambda r: (0, {"offset": 10 + int(r.ext_fields["queueId"])}, b"")],
    )
    assert ask(script, "find_bounds", fails=True) == {
        queue: Bounds(queue.queue_id, 10 + queue.queue_id) for queue in QUEUES
    }
    assert sorted(script.codes) == [30, 30, 31, 31, 202]


def test_queues_that_are_gone_are_left_out(ask):
    """Brokers say so of a topic; its queues begin and end at 0, as they say."""
    zero = (0, {"offset": "0"}, b"")
    script = Script(c202=[(17, {}, b"")], c30=[zero], c31=[zero])
    assert ask(script, "find_bounds", fails=True) == {}
    assert script.codes == [202]
    script = Script(c202=[(1, {}, b"")], c30=[(17, {}, b"")], c31=[(17, {}, b"")])
    assert ask(script, "find_bounds", fails=True) == {}
    script = Script(c202=[(1, {}, b"")], c30=[(16, {}, b"")], c31=[(16, {}, b"")])
    with pytest.raises(AnswerRefused, match="16 NO_PERMISSION"):
        ask(script, "find_bounds", fails=True)


def test_a_broken_connection_is_asked_again_with_pauses(ask):
    script = Script(c202=[CUT, CUT, (0, {}, statistics({QUEUES[0]: Bounds(1, 2)}))],
                    c30=[(17, {}, b"")], c31=[(17, {}, b"")])  # fmt: skip
    assert ask(script, "find_bounds", fails=True) == {QUEUES[0]: Bounds(1, 2)}
    assert ask.pauses == [0.01, 0.02]
    with pytest.raises(PeerError, match="closed the connection"):
        ask(Script(c202=[CUT]), "find_bounds", fails=True)
    assert ask(Script(c202=[CUT]), "find_bounds", fails=False) == {}


def test_offsets_of_times(ask):
    script = Script(c29=[lambda r: (0, {"offset": r.ext_fields["timestamp"]}, b"")])
    times = {QUEUES[0]: 5, QUEUES[1]: 7}
    assert ask(script, "offsets_at", times) == times


def test_log_offsets_of_messages(ask):
    """A broker that has another message answers with its offset, or not with 0."""

    def pull(request):
        assert request.ext_fields["consumerGroup"] == "G"
        assert request.ext_fields["maxMsgNums"] == "1"
        offset = int(request.ext_fields["queueOffset"])
        record = bytes(20) + offset.to_bytes(8) + (900 + offset).to_bytes(8)
        return (0, {}, record) if offset < 8 else (21, {}, b"")

    positions = {QUEUES[0]: 5, QUEUES[1]: 9}
    found = {QUEUES[0]: 904, QUEUES[1]: None}
    assert ask(Script(c11=[pull]), "find_log_offsets", positions, "G") == found
    later = (0, {}, bytes(20) + (6).to_bytes(8) + bytes(8))
    other = Script(c11=[later])
    assert ask(other, "find_log_offsets", {QUEUES[0]: 5}, "G") == {QUEUES[0]: None}
    assert ask(Script(c11=[CUT]), "find_log_offsets", positions, "G") == {}


@pytest.mark.parametrize("answer", [(0, {}, b""), (26, {}, b""), CUT])
def test_a_report_never_fails(ask, answer):
    script = Script(c15=[answer])
    ask(script, "report", "G", {QUEUES[0]: 5, MessageQueue("gone", "b", 0): 1})
    assert script.codes == [15]


def test_whom_to_read_from():
    route = {
        "brokerDatas": [
            {"brokerName": "a", "brokerAddrs": {"0": "m:1", "1": "s:1"}},
            {"brokerName": "b", "brokerAddrs": {"2": "s:2"}},
            {"brokerName": "c", "brokerAddrs": {"0": "m:3"}},
            {"brokerName": "d", "brokerAddrs": {}},
        ]
    }
    masters = {
        "a": ReadAddress("m:1", is_slave=False),
        "b": ReadAddress("s:2", is_slave=True),
        "c": ReadAddress("m:3", is_slave=False),
    }
    assert read_addresses(route, reads_slave=False) == masters
    slaves = masters | {"a": ReadAddress("s:1", is_slave=True)}
    assert read_addresses(route, reads_slave=True) == slaves


def test_routes_stay_known_while_no_name_server_answers():
    now = [0.0]
    script = Script(c202=[(0, {}, statistics({QUEUES[0]: Bounds(0, 1)}))],
                    c30=[(17, {}, b"")], c31=[(17, {}, b"")])  # fmt: skip
    with FakeBroker(script) as broker:
        settings = ClientSettings(
            (broker.address,), ANONYMOUS, TopicSelection(frozenset(["T"])), retries=0
        )
        client = LiveClient(settings, now=lambda: now[0])
        first = client.queues()
    now[0] = 31.0
    assert client.queues() == first
    assert client.find_bounds(fails=False) == {}
    client.close()


class Liar(FakeBroker):
    lie = None

    def _route(self):
        return super()._route() if self.lie is None else self.lie


LIES = (
    b"",
    b"{",
    b"[]",
    b"1",
    b'{"queueDatas": 1}',
    b'{"queueDatas": [1]}',
    b'{"brokerDatas": [1]}',
    b'{"brokerDatas": [{"brokerAddrs": {"0": "m:1"}}]}',
    b'{"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"0": "m:1"}}], '
    b'"queueDatas": [{"brokerName": "b", "perm": "x", "readQueueNums": 1}]}',
    b'{"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"0": "m:1"}}], '
    b'"queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": "many"}]}',
)


@pytest.mark.parametrize("lie", LIES)
def test_a_route_that_makes_no_sense_is_a_sentence_or_leaves_the_known_ones(lie):
    now = [0.0]
    with Liar(Script()) as broker:
        settings = ClientSettings(
            (broker.address,), ANONYMOUS, TopicSelection(frozenset(["T"])), retries=0
        )
        with closing(LiveClient(settings, now=lambda: now[0])) as client:
            known = client.queues()
            assert known
            broker.lie = lie
            now[0] = 31.0
            assert client.queues() == known
        with (
            closing(LiveClient(settings)) as client,
            pytest.raises(RemoteProtocolError),
        ):
            client.queues()


def test_a_route_with_more_queues_than_there_can_be_is_cut():
    with Liar(Script()) as broker:
        broker.lie = (
            b'{"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"0": "m:1"}}], '
            b'"queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 1e9}]}'
        ).replace(b"1e9", b"1000000000")
        settings = ClientSettings(
            (broker.address,), ANONYMOUS, TopicSelection(frozenset(["T"])), retries=0
        )
        with closing(LiveClient(settings)) as client:
            assert len(client.queues()) == MAX_QUEUES


def test_a_slave_that_lags_has_lost_nothing():
    class Slave(FakeBroker):
        def _route(self):
            return super()._route().replace(b'"0":', b'"1":')

    with Slave(Script()) as broker:
        settings = ClientSettings(
            (broker.address,), ANONYMOUS, TopicSelection(frozenset(["T"])), retries=0
        )
        client = LiveClient(settings)
        assert all(source.is_slave for source in client.queues().values())
        assert client.is_ahead_of_slave(QUEUES[0], 6, Bounds(0, 5))
        assert not client.is_ahead_of_slave(QUEUES[0], 5, Bounds(0, 5))
        client.close()
