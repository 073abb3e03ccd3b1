"""Decodes Avro bodies to JSON texts, so that one set of rules converts both forms.

Two framings name the schema of the writer:

    single object   C3 01, 8 bytes little-endian: Rabin fingerprint of the schema
    Confluent       00, 4 bytes big-endian: id of the schema in a registry

Format: https://avro.apache.org/docs/1.11.1/specification/#single-object-encoding and
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/

The schemas are files `*.avsc` of a folder (`17.avsc` has id 17), or come from a
registry (`GET <url>/schemas/ids/17`).  Producers may write any id, so the number of
requests for unknown ids is bounded.
"""

import io
import json
import struct
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from rmq.core.errors import ConfigError, ConnectFailed
from rmq.core.extras import install_command

try:
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import (
        SchemaParseException,
        fingerprint,
        to_parsing_canonical_form,
    )
except ImportError as error:
    raise ConfigError(
        f"Avro bodies need fastavro: {install_command('avro')}"
    ) from error

_SINGLE_OBJECT: Final = b"\xc3\x01"
_CONFLUENT: Final = b"\x00"
_FINGERPRINT: Final = struct.Struct("<Q")
_NUMBER: Final = struct.Struct(">I")
MAX_UNKNOWN: Final = 100
"""Limit of unknown ids that are requested; each is a request."""
MAX_SCHEMA_BYTES: Final = 1 << 20
"""Limit of a schema from a registry; usual schemas have some kilobytes."""
TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404


class AvroDecoder:
    """Decodes Avro bodies to JSON texts."""

    def __init__(self, source: str) -> None:
        self._registry = (
            source if urlsplit(source).scheme in ("http", "https") else None
        )
        self.by_id: dict[int, Any] = {}
        self.by_fingerprint: dict[int, Any] = {}
        self._unknown: set[int] = set()
        if self._registry is None:
            self._read_folder(Path(source))

    def __call__(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the texts, with null for unreadable bodies, and the problems of the
        unreadable bodies.
        """
        texts: list[bytes | None] = []
        problems: list[str | None] = []
        for body in bodies.to_pylist():
            try:
                texts.append(self._decode_body(body or b""))
                problems.append(None)
            except _Unreadable as error:
                texts.append(None)
                problems.append(str(error))
        return pa.array(texts, pa.binary()), pa.array(problems, pa.string())

    def _decode_body(self, body: bytes) -> bytes:
        schema, start = self._schema_of(body)
        data = io.BytesIO(body)
        data.seek(start)
        try:
            value = schemaless_reader(data, schema, None)
            if data.read(1):
                raise _Unreadable("bytes follow the Avro value of the body")
            return msgspec.json.encode(value)
        # fastavro does not document its errors for damaged bytes
        except (
            EOFError, ValueError, TypeError, IndexError, KeyError, OverflowError,
            ArithmeticError, StopIteration, AttributeError, MemoryError,
        ) as error:  # fmt: skip
            raise _Unreadable(
                f"the body does not match its Avro schema: {error}"
            ) from error

    def _schema_of(self, body: bytes) -> tuple[Any, int]:
        """Return the schema of a body, and the index where its value starts."""
        if body.startswith(_SINGLE_OBJECT) and len(body) >= 10:
            (print_,) = _FINGERPRINT.unpack_from(body, 2)
            schema = self.by_fingerprint.get(print_)
            if schema is None:
                raise _Unreadable(
                    f"Avro schema with fingerprint {print_:016x} is unknown"
                )
            return schema, 10
        if body.startswith(_CONFLUENT) and len(body) >= 5:
            (number,) = _NUMBER.unpack_from(body, 1)
            return self._schema_by_id(number), 5
        raise _Unreadable("the body starts with neither framing of Avro, C3 01 or 00")

    def _schema_by_id(self, number: int) -> Any:  # noqa: ANN401 - a parsed schema
        schema = self.by_id.get(number)
        if schema is None and self._registry and number not in self._unknown:
            schema = self._request_schema(number)
        if schema is None:
            raise _Unreadable(f"Avro schema {number} is unknown")
        return schema

    def _request_schema(self, number: int) -> Any:  # noqa: ANN401 - a parsed schema
        """Return a schema of the registry, None if it is unknown.

        ConnectFailed if the registry is unavailable: its bodies are not misfits.
        """
        if len(self._unknown) >= MAX_UNKNOWN:
            return None
        url = f"{self._registry}".rstrip("/") + f"/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                text = answer.read(MAX_SCHEMA_BYTES)
            schema = _parse_schema(json.loads(text)["schema"], url)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != _NOT_FOUND:
                raise ConnectFailed(
                    f"the registry answers {error.code}: {url}"
                ) from error
            self._unknown.add(number)
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConnectFailed(f"cannot reach the registry: {url}: {error}") from error
        self.by_id[number] = schema
        return schema

    def _read_folder(self, folder: Path) -> None:
        paths = sorted(folder.glob("*.avsc"))
        if not paths:
            raise ConfigError(f"{folder} has no schemas, files *.avsc")
        for path in paths:
            try:
                text = path.read_text()
            except (OSError, ValueError) as error:
                raise ConfigError(f"{path} cannot be read: {error}") from error
            schema = _parse_schema(text, str(path))
            canonical = to_parsing_canonical_form(json.loads(text))
            # fastavro returns the bytes in the order of the framing
            digits = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
            self.by_fingerprint[_FINGERPRINT.unpack(digits)[0]] = schema
            if path.stem.isdecimal():
                self.by_id[int(path.stem)] = schema


class _Unreadable(Exception):
    """A body that cannot be decoded; the text is the reason."""


def _parse_schema(text: str, place: str) -> Any:  # noqa: ANN401 - of an extra
    try:
        schema = json.loads(text)
        _refuse_recursion(schema, ())
        return parse_schema(schema)
    except (ValueError, KeyError, TypeError, SchemaParseException) as error:
        raise ConfigError(f"{place} is no Avro schema: {error}") from error


def _refuse_recursion(schema: Any, inside: tuple[str, ...]) -> None:  # noqa: ANN401
    """Refuse schemas by which a short body could exhaust the stack or the memory."""
    if isinstance(schema, str) and schema.rpartition(".")[2] in inside:
        raise ValueError(f"{schema} contains itself, which is not supported")
    if isinstance(schema, list):
        for branch in schema:
            _refuse_recursion(branch, inside)
    if isinstance(schema, dict):
        if _is_empty(schema.get("items")):
            raise ValueError("an array whose items take no bytes is not supported")
        if schema.get("type") in ("record", "error"):
            inside = (*inside, str(schema["name"]).rpartition(".")[2])
        for part in (schema.get("type"), schema.get("items"), schema.get("values")):
            _refuse_recursion(part, inside)
        for field in schema.get("fields", []):
            _refuse_recursion(field["type"], inside)


def _is_empty(schema: Any) -> bool:  # noqa: ANN401
    """Return whether values have no bytes: a short body may have any number of them."""
    if isinstance(schema, dict):
        fields = schema.get("fields")
        if fields is not None:
            return all(_is_empty(field["type"]) for field in fields)
        return schema.get("size") == 0 or _is_empty(schema.get("type"))
    return bool(schema == "null")
