"""What follows each answer to a frame, against a scripted broker."""

import pytest

from rmq.client.admin import Queue
from rmq.outgoing.identity import ANONYMOUS
from rmq.protocol.batch import BatchItem, decode_batch, encode_batch
from rmq.protocol.codes import RequestCode
from rmq_spark.backoff import pause_s
from rmq_spark.sink.frames import Frame
from rmq_spark.sink.sender import FrameSender, Routes, SendFailed, SendSettings
from tests.spark.fake_broker import CUT, SILENCE, FakeBroker

PLACE = {"msgId": "7F" * 16, "queueOffset": "5"}


def frame(number, queue=None):
    body = encode_batch([BatchItem(0, b"%d" % number, "")])
    return Frame("T", queue, number, number, 1, body)


class Sends:
    """A script: each frame's answers in turn, then success."""

    def __init__(self, **answers):
        self._answers = {int(key[1:]): list(codes) for key, codes in answers.items()}
        self.arrived = []

    def __call__(self, request):
        (item,) = decode_batch(request.body)
        number = int(item.body)
        self.arrived.append((number, int(request.ext_fields["e"])))
        left = self._answers.get(number)
        answer = left.pop(0) if left else 0
        if isinstance(answer, int):
            return answer, PLACE | {"queueId": request.ext_fields["e"]}, b""
        return answer


@pytest.fixture
def run():
    """Send frames to a broker with a script; the pauses and acknowledged rows."""

    def run_sender(script, frames, *, waits_for_disk=True, retries=3, timeout_ms=2_000):
        pauses = []
        with FakeBroker(script) as broker:
            settings = SendSettings(
                (broker.address,), ANONYMOUS, "G", timeout_ms, retries, 4,
                waits_for_disk,
            )  # fmt: skip
            routes = Routes(settings, pauses.append)
            sender = FrameSender(settings, routes, sleep=pauses.append)
            try:
                for each in frames:
                    if each.queue is not None:
                        address = broker.address
                        each = each._replace(queue=each.queue._replace(address=address))
                    sender.send(each)
                sender.finish()
            finally:
                sender.close()
                routes.close()
        return pauses, sender.rows

    return run_sender


@pytest.mark.parametrize("code", [1, 2, 10, 11, 12, 215, 1500])
def test_sent_again_until_it_is_stored(run, code):
    script = Sends(f1=[code, code])
    assert run(script, [frame(n) for n in range(3)]) == ([0.05, 0.1], 3)
    assert sorted(number for number, _ in script.arrived) == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_is_enough_if_the_user_says_so(run, code):
    script = Sends(f1=[code])
    assert run(script, [frame(1)], waits_for_disk=False) == ([], 1)


@pytest.mark.parametrize("code", [14, 16, 17, 501])
def test_a_new_route_once(run, code):
    assert run(Sends(f1=[code]), [frame(1)]) == ([0.05], 1)
    with pytest.raises(SendFailed, match=r"rows 1 to 1 .*topic T, are not.*scripted"):
        run(Sends(f1=[code, code]), [frame(1)])


@pytest.mark.parametrize("code", [3, 13, 29, 208, 4711])
def test_a_refusal_is_final(run, code):
    script = Sends(f1=[code])
    with pytest.raises(SendFailed, match=f"rows 1 to 1 .*{code}.*scripted {code}"):
        run(script, [frame(1)])
    assert len(script.arrived) == 1


def test_it_gives_up_after_the_retries(run):
    script = Sends(f1=[2] * 9)
    with pytest.raises(SendFailed, match=r"not acknowledged in 4 attempts: .*BUSY"):
        run(script, [frame(1)])
    assert len(script.arrived) == 4


def test_a_connection_that_ends_sends_all_again_that_had_no_answer(run):
    script = Sends(f1=[CUT], f7=[CUT])
    pauses, rows = run(script, [frame(n) for n in range(20)])
    assert rows == 20
    assert {number for number, _ in script.arrived} == set(range(20))
    assert pauses


def test_a_silent_broker_is_left(run):
    script = Sends(f1=[SILENCE])
    assert run(script, [frame(1)], timeout_ms=50) == ([0.05], 1)
    assert len(script.arrived) == 2


def test_another_queue_after_a_failure_unless_one_is_bound(run):
    script = Sends(f1=[2])
    run(script, [frame(1)])
    assert len({queue for _, queue in script.arrived}) == 2
    script = Sends(f1=[2])
    run(script, [frame(1, Queue("broker-a", "", 1))])
    assert script.arrived == [(1, 1), (1, 1)]


def test_a_bound_queue_keeps_its_order_after_failures(run):
    script = Sends(f0=[2], f3=[CUT, 2], f4=[10])
    run(script, [frame(n, Queue("broker-a", "", 0)) for n in range(8)])
    firsts = list(dict.fromkeys(number for number, _ in script.arrived))
    assert firsts == list(range(8))
    assert script.arrived == sorted(script.arrived)


def test_a_bound_queue_that_is_gone(run):
    with pytest.raises(SendFailed, match="4 attempts: broker broker-a has no queue 9"):
        run(Sends(), [frame(1, Queue("broker-a", "", 9))])


def test_a_broker_that_is_not_registered_for_a_while(run):
    """It takes its route away when it stops; the frame waits for it."""
    away = []

    class Script(Sends):
        def __call__(self, request):
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                away.append(request)
                return 17, {}, b""
            return super().__call__(request)

    script = Script(f1=[2, 2])
    with FakeBroker(script) as broker:
        settings = SendSettings((broker.address,), ANONYMOUS, "G", 2_000, 3, 4, True)
        routes = Routes(settings, lambda _: None)
        sender = FrameSender(settings, routes, sleep=lambda _: None)
        sender.send(frame(0))
        sender.finish()
        broker.knows_routes = False
        sender.send(frame(1))
        sender.finish()
        assert sender.rows == 2
        assert len(away) == 4, "the topic and the default topic, twice"
        with pytest.raises(SendFailed, match=r"topic Other: .*17 TOPIC_NOT_EXIST"):
            routes.queues_of("Other")
        sender.close()
        routes.close()


def test_no_name_server():
    pauses = []
    settings = SendSettings(("127.0.0.1:1",), ANONYMOUS, "G", 100, 1, 4, True)
    with pytest.raises(SendFailed, match=r"no name server answers: .*refuses"):
        Routes(settings, pauses.append).queues_of("T")
    assert pauses == [pause_s(n) for n in range(1, 11)]
    assert max(pauses) == 5.0
