"""AnswerRefused: the error for an answer with another code than success."""

from rmq.core.errors import RmqError
from rmq.protocol.codes import ResponseCode


class AnswerRefused(RmqError):
    """The server answered with a code other than success."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        try:
            name = ResponseCode(code).name
        except ValueError:
            name = "unknown"
        super().__init__(f"{address} answered {code} {name}: {remark.strip()}")
        self.name = name
        self.address = address
        self.code = code
        self.remark = remark
