"""Request 2004: whether the kernel reads ahead in the full files of the log."""

from typing import Final

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

NORMAL, RANDOM = "0", "1"
"""The kernel's advice for mapped files, with the numbers of `madvise`."""

_MAX_DIGITS: Final = 18


class ReadAheadHandler:
    """Sets the advice."""

    def __init__(self, broker: BrokerContext) -> None:
        self._log = broker.log

    def set_read_mode(self, request: Command, connection: Connection) -> Command:
        """Let the kernel read ahead in the log (0), or not (1)."""
        if not request.ext_fields:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error"
            )
        mode = request.ext_fields.get("READ_AHEAD_MODE", "")
        if not (mode.isascii() and mode.isdigit() and len(mode) <= _MAX_DIGITS):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed"
            )
        if mode not in (NORMAL, RANDOM):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                "set commitlog readahead mode param value error",
            )
        self._log.set_read_ahead(enabled=mode == NORMAL)
        return request.reply(
            remark=f"set commitlog readahead mode success, mode: {mode}"
        )
