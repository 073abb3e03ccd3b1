"""Command: one remoting frame as a value. Known in Java as `RemotingCommand`.

Invariants: `opaque` pairs a response with its request and is counted per direction; a
response carries the opaque number and the serialisation of its request; a oneway
request is never answered, not even with an error (the dispatcher drops it).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rmq.protocol.codes import WIRE_VERSION, ResponseCode, SerializeType
from rmq.protocol.headers import H, Header

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2
OWN_LANGUAGE: Final = "PYTHON"


class Command(msgspec.Struct, gc=False):
    """A request or a response; cheap to build, because every message is two of them.

    `language` is the name or the number that the peer sent; None if it sent neither.
    A header field or a remark that is null on the wire counts as absent.
    """

    code: int
    ext_fields: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: int | str | None = OWN_LANGUAGE
    version: int = WIRE_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the other side."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> "Command":
        """Build a request of ours; the sending `Peer` numbers it."""
        ext_fields = {} if header is None else header.encode()
        return cls(code, ext_fields, body, flag=FLAG_ONEWAY if oneway else 0)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        *,
        header: Header | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """Build the answer to this request; `ext_fields` follow those of `header`."""
        fields = {} if header is None else header.encode()
        if ext_fields is not None:
            fields.update(ext_fields)
        return Command(
            code,
            fields,
            body,
            remark,
            self.opaque,
            FLAG_RESPONSE,
            OWN_LANGUAGE,
            WIRE_VERSION,
            self.serialize_type,
        )

    def header(self, kind: type[H]) -> H:
        """Read the typed header; a missing or bad field raises `RequestRejected`."""
        return kind.decode(self.ext_fields)
