"""Statuses: the codes of gRPC, and the remoting codes that they replace."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

from rmq.plugin import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.grpc import schema

INVALID_ARGUMENT: Final = 3
INTERNAL: Final = 13
"""Statuses of gRPC itself, for calls that end without an answer."""


class Code(IntEnum):
    """The codes that rmq answers; 2xxxx is success, 4xxxx the client's fault."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402


class Refused(Exception):
    """A call that is answered with a status of the service."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_CODES: Final[dict[int, Code]] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: (
        Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    ),
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.QUERY_NOT_FOUND: Code.OFFSET_NOT_FOUND,
}


def code_of(code: int) -> Code:
    """Return the code of the service for a code of remoting."""
    if code == ResponseCode.SUCCESS:
        return Code.OK
    return _CODES.get(code, Code.INTERNAL_SERVER_ERROR)


def status(code: Code = Code.OK, text: str = "OK") -> Any:
    """Return a status."""
    return schema.Status(code=code, message=text)


def status_of(answer: Command) -> Any:
    """Return the status for the answer of a handler."""
    code = code_of(answer.code)
    return status(code, "OK" if code is Code.OK else answer.remark or code.name)


def common_status(entries: Iterable[Any], if_several: str) -> Any:
    """Return the first entry's status; MULTIPLE_RESULTS with a text if codes differ."""
    found = [each.status for each in entries]
    if len({each.code for each in found}) > 1:
        return status(Code.MULTIPLE_RESULTS, if_several)
    return found[0]


def refusal_of(error: RequestRejected) -> Refused:
    """Return the gRPC refusal for a refusal of the remoting protocol."""
    return Refused(code_of(error.code), error.remark)
