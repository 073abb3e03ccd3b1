"""Codes of remoting in statuses."""

import pytest

from rmq.remoting.inner_caller import InnerCaller
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.statuses import Code, code_of
from tests.plugins.grpc.grpc_sides import GrpcSide, ack_of

FOREIGN = 31_000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, Code.OK),
        (2, Code.TOO_MANY_REQUESTS),
        (17, Code.TOPIC_NOT_FOUND),
        (FOREIGN, Code.INTERNAL_SERVER_ERROR),
        (-1, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_the_code_of_a_response(code, expected):
    assert code_of(code) is expected


@pytest.fixture
def side(tmp_path):
    """A broker whose handlers are another plugin's: they answer with its own code."""

    def serve(caller, request):
        answer = request.reply(FOREIGN, "a plugin's refusal")
        answer.opaque = request.opaque
        caller.send_nowait(answer)

    side = GrpcSide(tmp_path, compiled=False)
    side.broker.open_caller = lambda connection, on_request: InnerCaller(
        connection, serve, lambda *_: None, on_request
    )
    yield side
    side.close()


def test_a_pull_that_a_plugin_refuses(side):
    """Its code once ended the call with an error."""
    request = schema.PullMessageRequest(batch_size=1)
    request.group.name, request.message_queue.topic.name = "G", "T"
    answer = side.call(request, "PullMessage")
    assert (answer.status.code, answer.status.message) == (50001, "a plugin's refusal")


def test_an_ack_that_a_plugin_refuses(side):
    answer = side.call(ack_of("1 2 3 4 0 b 0 0 0"), "AckMessage")
    assert answer.entries[0].status.code == 50001
