"""Requests of the segment reader and of exports to a broker.

Request 28 asks for the end of the readable log.  Request 20002, of the plugin `export`,
reports the progress of an export.  Each request has its own connection.
"""

import json
import socket
import struct
from typing import Final

from rmq.core.address import Address, is_address
from rmq.core.errors import ConfigError, ConnectFailed, RemoteProtocolError, RmqError
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode

TIMEOUT_S: Final = 10.0
_END: Final = "commitLogMaxOffset"
_MAX_ANSWER: Final = 1 << 20
"""Limit of an answer; the runtime table has some hundred short texts."""
_LENGTH: Final = struct.Struct(">I")


def request_end(address: str) -> int:
    """Return the end of the log of the broker at `host:port`."""
    answer = _request(
        parse_address(address), Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    )
    if answer.code != ResponseCode.SUCCESS:
        raise RmqError(
            f"the broker at {address} does not report where its log ends: "
            f"{answer.code} {answer.remark}"
        )
    try:
        return int(json.loads(answer.body)["table"][_END])
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteProtocolError(
            f"the broker at {address} answers without {_END}: {error}"
        ) from error


def report_offset(address: str, exporter: str, offset: int) -> None:
    """Report to the broker that the table of `exporter` is complete up to `offset`."""
    _report(address, {"exporter": exporter, "offset": str(offset)})


def forget_exporter(address: str, exporter: str) -> None:
    """Remove `exporter` from the broker, which then keeps no files for it."""
    _report(address, {"exporter": exporter, "forget": "true"})


def _report(address: str, fields: dict[str, str]) -> None:
    answer = _request(
        parse_address(address), Command(OwnRequestCode.REPORT_EXPORT, fields)
    )
    if answer.code != ResponseCode.SUCCESS:
        raise RmqError(
            f"the broker at {address} refuses the report of "
            f"{fields['exporter']}: {answer.code} {answer.remark}"
        )


def parse_address(text: str) -> Address:
    """Return the address in a setting; ConfigError if it is no address."""
    if not is_address(text):
        raise ConfigError(f"address {text!r} is not host:port")
    return Address.parse(text)


def _request(address: Address, request: Command) -> Command:
    try:
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(encode(request))
            head = _receive(connection, _LENGTH.size)
            (size,) = _LENGTH.unpack(head)
            if size > _MAX_ANSWER:
                raise RemoteProtocolError(
                    f"{address} is no broker: it announces an answer of {size} bytes"
                )
            return decode(head + _receive(connection, size))
    except OSError as error:
        raise ConnectFailed(f"cannot ask the broker at {address}: {error}") from error


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise RemoteProtocolError(
                "the broker closed the connection before it answered"
            )
        data += more
    return data
