"""Message: a message from a client, before it is stored."""

import msgspec

from rmq.protocol.flags import TRANSACTION_MASK, TRANSACTION_PREPARED
from rmq.protocol.properties import encode_properties
from rmq.protocol.topics import TRANS_HALF_TOPIC


class Message(msgspec.Struct, gc=False):
    """A message before it is stored.

    Read `properties` freely, but change them only through `set_property` and
    `remove_property`: these two drop `properties_text`, the form to be stored.
    `born_host` is packed as in a record; a caller that passes 20 bytes also sets the
    IPv6 bit of the system flag.
    """

    topic: str
    queue_id: int
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    properties_text: str | None = None

    @property
    def is_half(self) -> bool:
        """Whether the message belongs to a transaction that is not committed yet."""
        return (
            self.topic == TRANS_HALF_TOPIC
            or self.sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED
        )

    def set_property(self, name: str, value: str) -> None:
        """Add or replace a property."""
        assert name, "a property without a name would be lost"
        self.properties[name] = value
        self.properties_text = None

    def remove_property(self, name: str) -> str | None:
        """Remove a property; return its old value."""
        value = self.properties.pop(name, None)
        if value is not None:
            self.properties_text = None
        return value

    def stored_properties(self) -> str:
        """Return the text to store: as received unless a property changed."""
        if self.properties_text is None:
            self.properties_text = encode_properties(self.properties)
        return self.properties_text
