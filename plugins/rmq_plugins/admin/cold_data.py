"""Requests 2001 to 2004: flow control for consumers of old messages, and read-ahead.

rmq slows no consumer down, like a Java broker with `coldDataFlowControlEnable=false`,
the default. It keeps the thresholds of groups until it stops, and shows them. 2004
sets whether the kernel reads ahead in the full files of the log.
"""

import logging
from typing import Final

import msgspec

from rmq.plugin import (
    BrokerContext,
    ConfigError,
    Connection,
    Foreign,
    RequestRejected,
    SparseLog,
    parse_properties,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

MAX_GROUPS: Final = 1_024
"""Groups with a threshold; each costs 100 bytes."""

MAX_TEXT_SIZE: Final = 65_536
GROUP_THRESHOLD: Final = 3 * 1024 * 1024
GLOBAL_THRESHOLD: Final = 100 * 1024 * 1024
"""Java's defaults in bytes per minute; only answers contain them."""

NORMAL, RANDOM = "0", "1"
"""The kernel's advice for mapped files, as `madvise` numbers it."""

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class ColdDataHandler:
    """The part of Java's `ColdDataCgCtrService` that tools see."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._thresholds: dict[str, int] = {}

    def update_thresholds(self, request: Command, connection: Connection) -> Command:
        """Set the thresholds of groups from lines `group=bytes`; skip other lines."""
        if len(request.body) > MAX_TEXT_SIZE:
            raise _invalid(f"more than {MAX_TEXT_SIZE} bytes of groups")
        try:
            wanted = parse_properties(request.body)
        except ConfigError as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}"
            ) from error
        numbers = {name: text for name, text in wanted.items() if _is_number(text)}
        if len(self._thresholds.keys() | numbers.keys()) > MAX_GROUPS:
            raise _invalid(f"at most {MAX_GROUPS} groups have a threshold; remove some")
        self._thresholds.update((name, int(text)) for name, text in numbers.items())
        logger.warning(
            "%s sets thresholds of %d groups for old messages; rmq slows no consumer "
            "down",
            Foreign(connection.remote_address),
            len(numbers),
        )
        return request.reply()

    def remove_threshold(self, request: Command, connection: Connection) -> Command:
        """Remove the threshold of the group in the body, if it has one."""
        self._thresholds.pop(request.body.decode(errors="replace"), None)
        return request.reply()

    def get_thresholds(self, request: Command, connection: Connection) -> Command:
        """Answer the thresholds of groups, and Java's defaults."""
        return request.reply(
            body=msgspec.json.encode(
                {
                    "runtimeTable": {},
                    "configTable": self._thresholds,
                    "cgColdReadThreshold": GROUP_THRESHOLD,
                    "globalColdReadThreshold": GLOBAL_THRESHOLD,
                    "globalAcc": 0,
                }
            )
        )

    def set_read_mode(self, request: Command, connection: Connection) -> Command:
        """Let the kernel read ahead in the log (0), or not (1)."""
        mode = request.ext_fields.get("READ_AHEAD_MODE")
        if mode is None or not _is_number(mode):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed"
            )
        if mode not in (NORMAL, RANDOM):
            raise _invalid("set commitlog readahead mode param value error")
        self._broker.log.set_read_ahead(enabled=mode == NORMAL)
        return request.reply(
            remark=f"set commitlog readahead mode success, mode: {mode}"
        )


def _is_number(text: str) -> bool:
    """Return whether Java would read the text as a long of at least 0."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
