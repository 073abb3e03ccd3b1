"""Configuration: each key is declared once, as a field of a `Configuration`.

`option()` holds the Java key, the limits and one line of documentation; parsing,
checking, `rmq config print` and the allow-list for remote changes use it.  Files are
Java properties, read without changes.  Precedence: flags, then `RMQ_*` environment
variables, then the file, then the default.
"""

import dataclasses
import enum
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rmq.config import keys
from rmq.config.properties_text import decode_properties
from rmq.core.errors import BadValue, ConfigError

T = TypeVar("T")
INT_MAX = (1 << 31) - 1
"""Maximum of numbers: Java's brokers read no larger number."""

LONG_MAX = (1 << 63) - 1
DAY_MS = 86_400_000
"""Maximum pause of a task; after the pause the task reads its key again."""

SHOWN_TEXT_SIZE = 60
"""Maximum characters of a refused key or value that an error repeats."""

_MARK = "rmq.option"
_INLINE_COMMENT = re.compile(r"\s#")


class Option(msgspec.Struct, frozen=True):
    """The arguments of `option()` without the default."""

    key: str
    doc: str
    low: int | None
    high: int | None
    dynamic: bool
    path: bool
    secret: bool


class MetricsExporter(enum.Enum):
    """How metrics are exported: to Prometheus on request, or regularly."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    OTLP_GRPC = "OTLP_GRPC"
    OTLP_HTTP = "OTLP_HTTP"
    LOG = "LOG"

    @property
    def is_regular(self) -> bool:
        """Whether the process itself sends the metrics, or writes them."""
        return self not in (MetricsExporter.DISABLE, MetricsExporter.PROM)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class Configuration:
    """Base of classes whose fields are keys: frozen dataclasses with common methods.

    A dataclass compiles its own methods: for 60 fields that takes 5 ms of every start.
    """

    def __init_subclass__(cls) -> None:
        """Make the class a dataclass, without the methods that dataclasses compile."""
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: Any) -> None:
        """Set values by name of field; other fields have their defaults."""
        defaults = {field.name: field.default for field, _ in options(self)}
        unknown = values.keys() - defaults
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}")
        self.__dict__.update(defaults | values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raise ConfigError if the values contradict each other."""

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse an assignment: only `rmq/config/changes.py` may change values."""
        raise dataclasses.FrozenInstanceError(f"cannot assign to {name}")

    def __eq__(self, other: object) -> bool:
        """Compare all values."""
        return type(self) is type(other) and self.__dict__ == other.__dict__


def option(
    default: Any,
    *,
    key: str,
    doc: str,
    low: int | None = None,
    high: int | None = None,
    dynamic: bool = False,
    path: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a key. `dynamic`: request 25 may change it; `secret`: never shown.

    A number without limits must be between 0 and INT_MAX, so that no clock, sleep or
    counter overflows.
    """
    if type(default) is int:
        low = 0 if low is None else low
        high = INT_MAX if high is None else high
        assert low <= default <= high, key
    mark = Option(key, doc, low, high, dynamic, path, secret)
    return dataclasses.field(default=default, metadata={_MARK: mark})


def options(config: type | object) -> Iterator[tuple[dataclasses.Field[Any], Option]]:
    """Yield the fields of a configuration class that are keys, in their order."""
    for field in dataclasses.fields(config):  # type: ignore[arg-type] # any dataclass
        if _MARK in field.metadata:
            yield field, field.metadata[_MARK]


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a Java properties file; values are trimmed as Java trims them."""
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read configuration file {path}: {error.strerror}"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"configuration file {path}: {error}") from error


def parse_properties(data: bytes) -> dict[str, str]:
    """Read keys and values of properties; ConfigError if the text is not valid."""
    # imported on use: it imports XML and HTTP, 20 ms of a broker's start
    import javaproperties

    try:
        values = javaproperties.loads(decode_properties(data))
        for text in (*values, *values.values()):
            text.encode()  # an escape may be half of a character
    except (UnicodeError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigError(str(error)) from error
    return {key: value.strip() for key, value in values.items()}


def environment_values(
    environ: Mapping[str, str], classes: Iterable[type]
) -> dict[str, str]:
    """Return variables like `RMQ_LISTEN_PORT` and `NAMESRV_ADDR` as keys and values."""
    values: dict[str, str] = {}
    for config in classes:
        for field, mark in options(config):
            name = "RMQ_" + field.name.upper()
            if name in environ:
                values[mark.key] = environ[name]
    if "NAMESRV_ADDR" in environ:
        values.setdefault("namesrvAddr", environ["NAMESRV_ADDR"])
    return values


def build(config: type[T], values: Mapping[str, str]) -> T:
    """Build a configuration from texts by key; ignore keys of other classes."""
    hints = typing.get_type_hints(config)
    fields = {
        field.name: parse_value(mark, hints[field.name], values[mark.key])
        for field, mark in options(config)
        if mark.key in values
    }
    return config(**fields)


def parse_value(mark: Option, kind: Any, text: str) -> Any:
    """Convert a text to the declared type and check its limits."""
    if mark.path:
        _check_path(mark.key, text)
    try:
        value = _convert_text(kind, text)
    except ValueError as error:
        raise BadValue(mark.key, shorten_text(text), error) from error
    if mark.low is not None and not value >= mark.low:  # also for NaN
        raise BadValue(
            mark.key, shorten_text(text), f"the smallest value is {mark.low}"
        )
    if mark.high is not None and value > mark.high:
        raise BadValue(
            mark.key, shorten_text(text), f"the largest value is {mark.high}"
        )
    return value


def _check_path(key: str, text: str) -> None:
    """Refuse a path that a shell would change: neither Java nor rmq does."""
    if not text.startswith("~") and "${" not in text and not text.startswith("$"):
        return
    whole = os.path.expandvars(os.path.expanduser(text))
    hint = "" if "$" in whole or whole.startswith("~") else f", such as {whole}"
    raise BadValue(
        key,
        shorten_text(text),
        f"write the whole path{hint}; only a shell replaces ~ and variables",
    )


def shorten_text(text: str) -> str:
    """Return the part of a foreign text that an error repeats."""
    if len(text) <= SHOWN_TEXT_SIZE:
        return text
    return text[:SHOWN_TEXT_SIZE] + "…"


def bad_values(values: Mapping[str, str], classes: Iterable[type]) -> dict[str, str]:
    """Return the keys with which no configuration can be built, each with its error.

    ConfigError if no key of `values` is the cause.
    """
    bad: dict[str, str] = {}
    for kind in classes:
        left = dict(values)
        while error := _build_error(kind, left):
            key = next((key for key in error.keys if key in left), None)
            if key is None:
                raise error
            bad[key] = str(error)
            del left[key]
    return bad


def _build_error(kind: type, values: Mapping[str, str]) -> ConfigError | None:
    try:
        build(kind, values)
    except ConfigError as error:
        return error
    return None


def _convert_text(kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("it must be true or false")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text.replace("_", "?"))  # Python's separator, not Java's
        except ValueError:
            raise ValueError("it must be a whole number") from None
    if kind is float:
        return float(text)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if text not in kind.__members__:
            raise ValueError("it must be one of " + ", ".join(kind.__members__))
        return kind[text]
    return text


def key_lines(data: bytes) -> dict[str, list[int]]:
    """Return the numbers, from 1, of the lines with each key of properties."""
    # imported on use, as in `parse_properties`
    import javaproperties

    places: dict[str, list[int]] = {}
    line = 1
    for element in javaproperties.parse(decode_properties(data)):
        if isinstance(element, javaproperties.KeyValue):
            places.setdefault(element.key, []).append(line)
        line += max(1, len(element.source.splitlines()))
    return places


class Finding(msgspec.Struct, frozen=True):
    """A remark about a configuration for its author."""

    key: str
    text: str
    is_problem: bool
    is_unknown: bool = False
    """Whether neither rmq nor Java knows the key."""


def known_keys(classes: Iterable[type]) -> set[str]:
    """Return the keys of these configurations, also those without effect."""
    own = {mark.key for config in classes for _, mark in options(config)}
    return own | keys.unused_keys().keys()


def check_settings(values: Mapping[str, str], classes: Iterable[type]) -> list[Finding]:
    """Find unknown keys, keys without effect and swallowed comments."""
    known = {mark.key for config in classes for _, mark in options(config)}
    disabled = [each.strip() for each in values.get("plugins.disabled", "").split(",")]
    resting = tuple(f"plugin.{name}." for name in disabled if name)
    return [
        finding
        for key, value in values.items()
        for finding in _check_one(key, value, known, resting)
    ]


def _check_one(
    key: str, value: str, known: set[str], resting: tuple[str, ...]
) -> Iterator[Finding]:
    if _INLINE_COMMENT.search(value):
        yield Finding(
            key,
            f"{key}: the value contains '#' after a blank; this text is part of the "
            "value, because a comment needs a line of its own",
            True,
        )
    if key in known:
        return
    unused = keys.unused_keys().get(key)
    if unused is not None:
        yield Finding(
            key,
            f"{key} has no effect in rmq: {unused.explanation}",
            unused.is_missed and value != unused.default,
        )
        return
    if key.startswith(resting):
        name = key.split(".")[1]
        yield Finding(
            key, f"{key} has no effect: plugins.disabled contains {name}", False
        )
        return
    near = nearest_name(key, known | keys.unused_keys().keys())
    hint = f"; did you mean {near}?" if near else ""
    yield Finding(key, f"unknown key {key}{hint}", True, is_unknown=True)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`."""
    # imported on use: few starts have a misspelt key
    import difflib

    lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.7)
    return lower[found[0]] if found else None


def describe(config: object) -> Iterator[tuple[str, str, bool]]:
    """Yield (key, value as Java writes it, is default); secret keys are left out."""
    for field, mark in options(config):
        if mark.secret:
            continue
        value = getattr(config, field.name)
        yield mark.key, as_text(value), value == field.default


def as_text(value: object) -> str:
    """Return the text of a value as Java writes it into properties."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return "" if value is None else str(value)
