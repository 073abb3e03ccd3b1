from typing import final

from rmq._fastpath.http2.call_paths import CallPath

@final
class AckCalls(CallPath):
    def __init__(self, code: int) -> None: ...
