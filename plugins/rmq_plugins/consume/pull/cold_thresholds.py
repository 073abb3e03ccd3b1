"""Requests 2001 to 2003: thresholds of groups that read old messages.

The thresholds are valid until the broker stops, as in Java.
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
from rmq_plugins.consume.pull.cold_reads import ADAPTIVE, ColdReads

MAX_GROUPS: Final = 1_024
"""Maximum number of groups with a threshold; each costs 100 bytes."""

MAX_TEXT_SIZE: Final = 65_536

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class ColdThresholds:
    """Sets and shows the thresholds of `ColdReads`."""

    def __init__(self, broker: BrokerContext, reads: ColdReads) -> None:
        self._config = broker.config
        self._reads = reads

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
        known = self._reads.thresholds
        if len(known.keys() | numbers.keys()) > MAX_GROUPS:
            raise _invalid(f"at most {MAX_GROUPS} groups have a threshold; remove some")
        known.update((name, int(text)) for name, text in numbers.items())
        effect = "; set coldDataFlowControlEnable=true to slow groups down"
        if self._reads.is_enabled:
            effect = ""
        logger.warning(
            "%s sets the cold-data thresholds of %d groups%s",
            Foreign(connection.remote_address),
            len(numbers),
            effect,
        )
        return request.reply()

    def remove_threshold(self, request: Command, connection: Connection) -> Command:
        """Remove the threshold of the group in the body, if it has one."""
        self._reads.thresholds.pop(request.body.decode(errors="replace"), None)
        return request.reply()

    def get_thresholds(self, request: Command, connection: Connection) -> Command:
        """Answer the thresholds, and the bytes that groups have read."""
        reads, config = self._reads, self._config
        adapted = {f"{name}{ADAPTIVE}": size for name, size in reads.adapted.items()}
        return request.reply(
            body=msgspec.json.encode(
                {
                    "runtimeTable": reads.reads,
                    "configTable": reads.thresholds | adapted,
                    "cgColdReadThreshold": config.cg_cold_read_threshold,
                    "globalColdReadThreshold": config.global_cold_read_threshold,
                    "globalAcc": reads.total,
                }
            )
        )


def _is_number(text: str) -> bool:
    """Return whether Java would read the text as a long of at least 0."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
