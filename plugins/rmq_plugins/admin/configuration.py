"""Requests 25 and 26: the configuration in effect, in the format of Java's properties.

Request 25 changes dynamic keys in the process and in its file: all keys of a request or
none. The answer names every key that it refuses. The broker ignores keys that rmq does
not have, as Java's broker does; the log and the remark name these keys.
"""

import logging
from typing import Final

from rmq.plugin import (
    BrokerContext,
    ConfigError,
    Connection,
    Foreign,
    RequestRejected,
    SparseLog,
    apply_changes,
    as_properties,
    parse_properties,
)
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.admin import GetBrokerConfigResponseHeader

MAX_TEXT_SIZE: Final = 65_536
BLACK_LIST_REMARK: Final = "Can not update config in black list."
BLACK_LIST: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys that Java refuses to change; rmq has only some of them."""

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class ConfigurationHandler:
    """The configuration part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.boot_ms)

    def get_config(self, request: Command, connection: Connection) -> Command:
        """Answer every key with its value, without secret keys."""
        header = GetBrokerConfigResponseHeader(version=self._version.encode().decode())
        return request.reply(header=header, body=as_properties(self._broker.configs()))

    def update_config(self, request: Command, connection: Connection) -> Command:
        """Change keys, if all keys may change and all values are in range."""
        if len(request.body) > MAX_TEXT_SIZE:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"more than {MAX_TEXT_SIZE} bytes of keys",
            )
        try:
            changes = parse_properties(request.body)
            if forbidden := sorted(BLACK_LIST & changes.keys()):
                raise RequestRejected(
                    ResponseCode.NO_PERMISSION,
                    f"{BLACK_LIST_REMARK} {', '.join(forbidden)}",
                )
            outcome = apply_changes(
                changes,
                self._broker.configs(),
                self._broker.config.config_path,
                ignores_unknown=True,
            )
        except ConfigError as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}"
            ) from error
        if outcome.has_bad_values_only:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, outcome.remark)
        if outcome.refused:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"{BLACK_LIST_REMARK} {outcome.remark}"
            )
        if outcome.changed:
            self._version = DataVersion(
                timestamp=self._broker.clock.now_ms(),
                counter=self._version.counter + 1,
            )
            self._broker.config_changed(outcome.changed)
        if outcome.ignored:
            logger.warning(
                "updateBrokerConfig of %s: ignored: %s",
                Foreign(connection.remote_address),
                Foreign(outcome.remark),
            )
            return request.reply(remark=f"ignored: {outcome.remark}")
        return request.reply()
