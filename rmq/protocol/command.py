"""Command: one remoting frame as a value. Known in Java as `RemotingCommand`.

Invariants: `opaque` pairs a response with its request; each direction counts its own
numbers. A response carries the opaque number and the serialisation of its request. A
oneway request is never answered, not even with an error (the dispatcher drops it).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rmq.protocol.codes import WIRE_VERSION, ResponseCode, SerializeType
from rmq.protocol.headers import I32, H, Header

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2
OWN_LANGUAGE: Final = "PYTHON"


class Command(msgspec.Struct, gc=False):
    """A request or a response; cheap to build, because every message needs a request
    and a response.

    Build commands of this process with `request` and `reply`, which set the language. A
    received command has the `language` that the peer sent, as name or number, and
    Java's default for missing and null fields. The JSON header is decoded directly into
    this class; therefore the type limits and the name of `ext_fields`.
    """

    code: I32
    ext_fields: dict[str, str] = msgspec.field(default_factory=dict, name="extFields")
    body: bytes = b""
    remark: str | None = None
    opaque: I32 = 0
    flag: I32 = 0
    language: int | str | None = None
    version: I32 = 0
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this command answers a request of the other side."""
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
        """Build a request of this process; the sending `Peer` numbers it."""
        return cls(
            code,
            {} if header is None else header.encode(),
            body,
            flag=FLAG_ONEWAY if oneway else 0,
            language=OWN_LANGUAGE,
            version=WIRE_VERSION,
        )

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        *,
        header: Header | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """Build the answer to this request; `ext_fields` follow the header's fields."""
        assert not self.is_response, f"response {self.opaque} cannot be answered"
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
