"""Messages that push consumers still process stay invisible."""

import copy
from types import SimpleNamespace

import pytest
import trio

from rmq_plugins.grpc import renewals, schema
from tests.plugins.consume.pop.popping import Popping
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import GrpcSide, ack_of

OK = 20000


class Consumer:
    """A push consumer of gRPC, and the clock of its broker."""

    def __init__(self, side, *, is_known=False):
        """`is_known`: compiled code serves its receives."""
        self.side = side
        self.popping = Popping(side.caller)
        self.renewals = side.grpc.service.renewals
        side.caller.topic("T", queues=1)
        if is_known:
            self.send(3)
            for _ in range(3):
                [handle] = self.receive(auto_renew=True, batch_size=1)
                assert self.ack(handle) == OK
        self.send(3)

    def send(self, count):
        for number in range(count):
            self.side.call(sent("T", b"%d" % number, message_id=f"01{number:030X}"))

    def receive(self, client_id=b"me", **fields):
        """The receipt handles of a receive."""
        request = schema.ReceiveMessageRequest(**{"batch_size": 32} | fields)
        request.group.name = "G"
        request.message_queue.topic.name = "T"
        frames = self.side.frames_of(
            "ReceiveMessage", request, x_mq_client_id=client_id
        )
        self.side.play([frames])
        found = self.side.messages()
        return [each.system_properties.receipt_handle for each in found]

    def pass_time(self, seconds):
        """Let time pass in steps of 10 s, as the services see it."""
        for _ in range(seconds // 10):
            self.popping.work(10_000)
            self.renewals.renew_due()

    def ack(self, handle):
        return self.side.call(ack_of(handle), "AckMessage").status.code

    def seen_again(self):
        """How many messages another consumer of the group gets now."""
        return len(self.popping.pop())


@pytest.fixture(params=[False, True], ids=["new", "known"])
def consumer(tmp_path, request):
    side = GrpcSide(tmp_path, compiled=True)
    yield Consumer(side, is_known=request.param)
    side.close()


def test_messages_stay_invisible_while_they_are_processed(consumer):
    """They once came again after a minute."""
    handles = consumer.receive(auto_renew=True)
    assert len(handles) == len(consumer.renewals) == 3
    consumer.pass_time(300)
    assert consumer.seen_again() == 0
    assert [consumer.ack(handle) for handle in handles] == [OK] * 3
    assert len(consumer.renewals) == 0
    consumer.pass_time(300)
    assert consumer.seen_again() == 0


def test_messages_that_are_acked_at_once_are_not_renewed(consumer):
    for handle in consumer.receive(auto_renew=True):
        assert consumer.ack(handle) == OK
    assert len(consumer.renewals) == 0
    consumer.pass_time(300)
    assert consumer.seen_again() == 0


def test_messages_of_a_client_that_is_gone_come_again(consumer):
    consumer.receive(auto_renew=True)
    consumer.pass_time(100)
    consumer.side.grpc.service.end_connection(consumer.side.token)
    consumer.pass_time(100)
    assert consumer.seen_again() == 3
    assert len(consumer.renewals) == 0


def test_messages_of_a_client_that_ends_come_again_at_once(consumer):
    consumer.receive(auto_renew=True)
    end = schema.NotifyClientTerminationRequest()
    assert consumer.side.call(end, "NotifyClientTermination").status.code == OK
    consumer.pass_time(10)
    assert consumer.seen_again() == 3
    assert len(consumer.renewals) == 0


def open_other(side):
    """A session of the same client on another connection."""
    connection = copy.copy(side.connection)
    connection.token += 1
    metadata = {"x-mq-client-id": "me"}
    call = SimpleNamespace(metadata=metadata, connection=connection)
    return side.grpc.service.sessions.find(call)


def test_another_connection_of_the_same_client_keeps_its_messages(consumer):
    """They once ended with the first connection that ended."""
    consumer.receive(auto_renew=True)
    consumer.renewals.end_session(open_other(consumer.side))
    assert len(consumer.renewals) == 3
    consumer.pass_time(300)
    assert consumer.seen_again() == 0


def test_the_last_connection_of_a_client_ends_all_its_messages(consumer):
    consumer.receive(auto_renew=True)
    other = open_other(consumer.side)
    consumer.side.grpc.service.end_connection(consumer.side.token)
    consumer.pass_time(300)
    assert consumer.seen_again() == 0
    consumer.renewals.end_session(other)
    consumer.pass_time(10)
    assert consumer.seen_again() == 3


def test_a_message_is_renewed_for_three_hours_at_most(consumer, monkeypatch):
    monkeypatch.setattr(renewals, "MAX_AGE_MS", 200_000)
    consumer.receive(auto_renew=True)
    consumer.pass_time(300)
    assert consumer.seen_again() == 3


def test_a_client_has_a_limit_of_messages(consumer):
    consumer.renewals.table.client_limit = 2
    consumer.receive(auto_renew=True)
    assert len(consumer.renewals) == 2
    consumer.pass_time(100)
    assert consumer.seen_again() == 1


def test_a_message_gets_a_time_of_its_own(consumer):
    handle, *_ = consumer.receive(auto_renew=True)
    consumer.pass_time(100)
    request = schema.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.group.name, request.topic.name = "G", "T"
    request.invisible_duration.seconds = 20
    answer = consumer.side.call(request, "ChangeInvisibleDuration")
    assert answer.status.code == OK
    assert len(consumer.renewals) == 2
    consumer.pass_time(40)
    assert consumer.seen_again() == 1


def test_simple_consumers_renew_themselves(consumer):
    request = {"invisible_duration": schema.Time(seconds=30)}
    assert len(consumer.receive(**request)) == 3
    assert len(consumer.renewals) == 0


async def test_the_service_renews_in_time(tmp_path, autojump_clock):
    side = GrpcSide(tmp_path, compiled=False)
    consumer = Consumer(side)
    consumer.receive(auto_renew=True)
    due = consumer.renewals.next_due_ms
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.renewals.run)
        await trio.sleep(1)
        side.broker.clock.ms += renewals.RENEW_MS
        await trio.sleep(46)
        nursery.cancel_scope.cancel()
    assert consumer.renewals.next_due_ms > due
    side.close()
