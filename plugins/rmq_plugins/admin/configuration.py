"""Requests 25 and 26: the configuration in effect, as text of Java's properties.

25 changes keys that are declared dynamic, all of a request or none, until the broker
stops; what stays so belongs into the file.
"""

import typing
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from rmq.broker.context import BrokerContext, Connection
from rmq.config import (
    NO_EFFECT_KEYS,
    NO_EFFECT_SUFFIXES,
    Option,
    describe,
    nearest,
    options,
    parse_value,
)
from rmq.errors import ConfigError, RequestRejected
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.admin import GetBrokerConfigResponseHeader

MAX_TEXT_SIZE: Final = 65_536

_BLACK_LIST: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys that Java never changes either, in its words."""


class Change(typing.NamedTuple):
    """One field of a configuration and its new value."""

    config: object
    field: str
    value: object


class ConfigurationHandler:
    """The configuration part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._version = DataVersion(timestamp=broker.boot_ms)

    def show(self, request: Command, connection: Connection) -> Command:
        """Answer every key with its value; secret ones stay here."""
        lines = {
            f"{key}={value}\n"
            for config in self._configs()
            for key, value, _is_default in describe(config)
        }
        header = GetBrokerConfigResponseHeader(version=self._version.encode().decode())
        return request.reply(header=header, body="".join(sorted(lines)).encode())

    def update(self, request: Command, connection: Connection) -> Command:
        """Change keys, if all of them may change and all values are in range."""
        changes = [
            change
            for key, text in _read(request.body).items()
            for change in self._changes(key, text)
        ]
        assert all(hasattr(change.config, change.field) for change in changes), changes
        for config, field, value in changes:
            # frozen for everybody else: this is the one place that changes them
            object.__setattr__(config, field, value)
        if changes:
            self._version = DataVersion(
                timestamp=self._broker.clock.now_ms(),
                counter=self._version.counter + 1,
            )
        return request.reply()

    def _configs(self) -> tuple[Any, ...]:
        broker = self._broker
        return broker.config, broker.store_config, *broker.plugin_configs.values()

    def _changes(self, key: str, text: str) -> list[Change]:
        """Return what a key changes, in every configuration that has it."""
        found = []
        for config, field, mark in self._declared():
            if mark.key != key:
                continue
            if not mark.dynamic:
                _refuse(
                    f"{key} cannot change while the broker runs; set it in the "
                    "broker's file and start it again"
                )
            kind = typing.get_type_hints(type(config))[field]
            try:
                found.append(Change(config, field, parse_value(mark, kind, text)))
            except ConfigError as error:
                raise RequestRejected(
                    ResponseCode.INVALID_PARAMETER, str(error)
                ) from error
        if not found:
            self._refuse_unknown(key)
        return found

    def _declared(self) -> Iterator[tuple[object, str, Option]]:
        for config in self._configs():
            for field, mark in options(config):
                yield config, field.name, mark

    def _refuse_unknown(self, key: str) -> NoReturn:
        if key in _BLACK_LIST:
            _refuse("Can not update config in black list.")
        if key in NO_EFFECT_KEYS or key.endswith(NO_EFFECT_SUFFIXES):
            _refuse(f"{key} has no effect in rmq")
        near = nearest(key, {mark.key for _, _, mark in self._declared()})
        hint = f"; did you mean {near}?" if near else ""
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"unknown key {key[:200]}{hint}"
        )


def _refuse(remark: str) -> NoReturn:
    raise RequestRejected(ResponseCode.NO_PERMISSION, remark)


def _read(body: bytes) -> dict[str, str]:
    """Read Java properties from a body."""
    # imported on use: it brings XML and HTTP along, 20 ms of a broker's start
    import javaproperties

    if len(body) > MAX_TEXT_SIZE:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER, f"more than {MAX_TEXT_SIZE} bytes of keys"
        )
    try:
        values = javaproperties.loads(body.decode("utf-8"))
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}"
        ) from error
    return {key: value.strip() for key, value in values.items()}
