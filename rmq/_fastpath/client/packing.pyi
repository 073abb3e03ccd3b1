from typing import Protocol, final

from rmq._fastpath.bytes.unique_keys import UniqueKeys

class _Message(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes: ...

@final
class PackedMessage:
    topic: str
    msg_ids: str | list[str]
    properties: bytes
    body: bytes
    sys_flag: int
    wait_stored: bool
    alone: bool
    size: int
    def __init__(
        self,
        topic: str,
        msg_ids: str | list[str],
        properties: bytes,
        body: bytes,
        sys_flag: int,
        wait_stored: bool,
        alone: bool = False,
    ) -> None: ...
    is_batch: bool

def pack_plain(
    keys: UniqueKeys, message: _Message, limit: int
) -> PackedMessage | None: ...
def join(messages: list[PackedMessage], properties: bytes) -> PackedMessage: ...
