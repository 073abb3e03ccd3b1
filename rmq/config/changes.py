"""Changes to a running configuration: requests 25 and 318, and SIGHUP.

Only keys declared `dynamic` may change; a change is applied completely or not at all,
so that file and process always agree.  The order: check every key, write the file (the
old file stays as `.bak`), then change the values in use.
Configurations are frozen for all other code: readers see a new value at their next
read.  A key whose value is copied at start must not be declared dynamic.
Call from the trio thread; blocks for one small write.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rmq.config import keys
from rmq.config.option import (
    Option,
    as_text,
    describe,
    nearest_name,
    options,
    parse_properties,
    parse_value,
    shorten_text,
)
from rmq.config.properties_text import decode_properties
from rmq.core.errors import ConfigError, RequestRejected
from rmq.core.files import replace_file
from rmq.protocol.codes import ResponseCode

MAX_CHANGES = 1024
"""Maximum number of keys of one request."""

MAX_TEXT_SIZE = 65_536
"""Maximum size of the properties in one request, which take 20 ms to parse."""

MAX_VALUE_SIZE = 4096
"""Maximum characters of a value: it becomes one line of the file."""

MAX_HINTS = 8
"""Maximum number of unknown keys of one request that are compared with the known keys:
5 ms each.
"""

NOT_LIVE = "this key cannot be changed while the process runs: set it in the file"
"""The reason for which a key is refused with any value."""

MAX_REASONS = 16
"""Maximum number of refused keys that one remark names."""


class Outcome(NamedTuple):
    """The result of a change: new texts by key, or the reason of each refusal.

    `ignored` has the keys that do not exist, each with a sentence.
    """

    changed: dict[str, str]
    refused: dict[str, str]
    ignored: dict[str, str]
    has_bad_values_only: bool = False
    """Whether each refused key would be changed with another value."""

    @property
    def remark(self) -> str:
        """The refused keys with their reasons, in one line; if there are none, the
        ignored keys.
        """
        named = self.refused or self.ignored
        reasons = [
            f"{shorten_text(key)}: {reason}"
            for key, reason in islice(named.items(), MAX_REASONS)
        ]
        if len(named) > MAX_REASONS:
            reasons.append(f"and {len(named) - MAX_REASONS} more")
        return "; ".join(reasons)


BLACK_LIST_REMARK = "Can not update config in black list."


def check_refusals(outcome: Outcome) -> None:
    """Raise RequestRejected if keys were refused, with Java's remark for fixed ones."""
    if outcome.has_bad_values_only:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, outcome.remark)
    if outcome.refused:
        remark = f"{BLACK_LIST_REMARK} {outcome.remark}"
        raise RequestRejected(ResponseCode.NO_PERMISSION, remark)


class _Place(NamedTuple):
    """The definition of a key: the instance, its field and its `Option`."""

    config: Any
    field: str
    mark: Option

    def parse(self, text: str) -> Any:  # noqa: ANN401 - of the key's type
        """Return the value of a text for this key; ConfigError if it is not valid."""
        kind = typing.get_type_hints(type(self.config))[self.field]
        return parse_value(self.mark, kind, text)


def read_changes(body: bytes) -> dict[str, str]:
    """Read the keys and texts of a request; ConfigError if they cannot be read."""
    if len(body) > MAX_TEXT_SIZE:
        raise ConfigError(f"{len(body)} bytes of keys; at most {MAX_TEXT_SIZE}")
    return parse_properties(body)


def apply_changes(
    changes: Mapping[str, str],
    configs: Sequence[object],
    path: str = "",
    *,
    ignores_unknown: bool = False,
) -> Outcome:
    """Change keys of these instances and of the file, if every one may be changed.

    A key that does not exist is refused, or ignored as by Java's brokers.
    ConfigError if the file cannot be written; nothing is changed then.
    """
    if len(changes) > MAX_CHANGES:
        raise ConfigError(f"{len(changes)} keys at once; at most {MAX_CHANGES}")
    places = _places_by_key(configs)
    unknown = _unknown_keys(changes, places)
    ignored, refused = (unknown, {}) if ignores_unknown else ({}, unknown)
    values: list[tuple[_Place, Any]] = []
    for key in [each for each in changes if each in places]:
        try:
            values += _values_of(changes[key], places[key])
        except ConfigError as error:
            refused[key] = str(error)
    refused = refused or _find_conflicts(configs, values)
    if refused or not values:
        is_known = NOT_LIVE not in refused.values() and refused.keys() <= places.keys()
        return Outcome({}, refused, ignored, bool(refused) and is_known)
    texts = {place.mark.key: as_text(value) for place, value in values}
    if path:
        rewrite(Path(path), texts)
    for place, value in values:
        assert place.mark.key in changes, place.mark.key
        object.__setattr__(place.config, place.field, value)
    return Outcome(texts, {}, ignored)


def _places_by_key(configs: Iterable[object]) -> dict[str, list[_Place]]:
    places: dict[str, list[_Place]] = {}
    for config in configs:
        for field, mark in options(config):
            places.setdefault(mark.key, []).append(_Place(config, field.name, mark))
    return places


def _unknown_keys(changes: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the keys that do not exist, each with a hint for the first ones."""
    reasons: dict[str, str] = {}
    for key in changes:
        if key not in known:
            near = nearest_name(key, known) if len(reasons) < MAX_HINTS else None
            hint = f"; did you mean {near}?" if near else ""
            reasons[key] = keys.why_unused(key) or f"unknown key{hint}"
    return reasons


def _values_of(text: str, places: Sequence[_Place]) -> list[tuple[_Place, Any]]:
    """Parse a text for each definition of a key; ConfigError if it is not allowed."""
    if not any(place.mark.dynamic for place in places):
        raise ConfigError(NOT_LIVE)
    if len(text) > MAX_VALUE_SIZE or "\n" in text or "\r" in text:
        raise ConfigError(f"a value is one line of at most {MAX_VALUE_SIZE} characters")
    return [(place, place.parse(text)) for place in places]


def _find_conflicts(
    configs: Iterable[Any], values: Sequence[tuple[_Place, Any]]
) -> dict[str, str]:
    """Return every key of the values, each with the error that the values cause
    together.

    Each configuration is built again, because its checks are for changes, too.
    """
    for config in configs:
        fields = {each.field: value for each, value in values if each.config is config}
        try:
            if fields:
                dataclasses.replace(config, **fields)
        except ConfigError as error:
            return {place.mark.key: str(error) for place, _ in values}
    return {}


def find_differences(
    values: Mapping[str, str], configs: Sequence[object]
) -> tuple[dict[str, str], list[str]]:
    """Compare settings with the settings in use; return the dynamic keys to change, and
    the other keys that differ.
    """
    changes: dict[str, str] = {}
    fixed: list[str] = []
    for key, places in _places_by_key(configs).items():
        for place in places:
            field = type(place.config).__dataclass_fields__[place.field]
            wanted = place.parse(values[key]) if key in values else field.default
            if wanted == getattr(place.config, place.field):
                continue
            if any(one.mark.dynamic for one in places):
                changes[key] = as_text(wanted)
            elif key not in fixed:
                fixed.append(key)
    return changes, fixed


def rewrite(path: Path, changes: Mapping[str, str]) -> None:
    """Set keys in a properties file; its comments and other keys stay.

    The old file stays as `<name>.bak`. Crash contract: see `rmq/core/files.py`.
    """
    # imported on use: it imports XML and HTTP
    import javaproperties

    try:
        text = decode_properties(path.read_bytes()) if path.exists() else ""
        file = javaproperties.PropertiesFile.loads(text)
        for key, value in changes.items():
            file[key] = value
        replace_file(path, file.dumps().encode(), backup=True)
    except (OSError, ConfigError) as error:
        raise ConfigError(f"{path} cannot be rewritten: {error}") from error


def as_properties(configs: Iterable[object]) -> bytes:
    """Write every key with its value, as requests 26 and 319 answer them."""
    shown = {key: value for one in configs for key, value, _ in describe(one)}
    return "".join(f"{key}={shown[key]}\n" for key in sorted(shown)).encode()
