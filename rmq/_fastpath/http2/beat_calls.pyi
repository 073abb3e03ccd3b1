from typing import Self, final

from rmq._fastpath.http2.call_paths import CallPath

@final
class Beat:
    def __new__(
        cls,
        key: bytes,
        client_id: bytes,
        message: bytes,
        body: bytes,
        version: int,
        language: int,
    ) -> Self: ...

@final
class BeatCalls(CallPath):
    def __init__(self, code: int) -> None: ...
    def __len__(self) -> int: ...
    def register(
        self,
        token: int,
        client_id: str,
        message: bytes,
        body: bytes,
        *,
        version: int,
        language: int,
    ) -> None: ...
    def unregister(self, token: int) -> None: ...
