"""Answers that POPs of ordinary and of lite topics have in common."""

from typing import Final

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import ChangeInvisibleTimeResponseHeader

FOUND: Final = "FOUND"
NOTHING: Final = "NO_MESSAGE_IN_QUEUE"
UNSET: Final = "not set any response code"
"""Remark of answers for which Java sets no remark."""


def answer_invisible_time(
    request: Command,
    pop_ms: int,
    invisible_ms: int,
    revive_queue: int,
    code: ResponseCode = ResponseCode.SUCCESS,
) -> Command:
    """Answer request 200053 with the values of the message's new handle."""
    header = ChangeInvisibleTimeResponseHeader(
        pop_time=pop_ms, invisible_time=invisible_ms, revive_qid=revive_queue
    )
    return request.reply(code, UNSET, header=header)
