from typing import NamedTuple, Self, final

RPC_BOUNDS_MS: tuple[int, ...]

class RpcTime(NamedTuple):
    code: int
    response: int
    counts: tuple[int, ...]
    sum_ms: float

@final
class RpcTimes:
    def __new__(cls) -> Self: ...
    def observe(
        self, code: int, response: int, elapsed_ns: int, times: int = 1
    ) -> None: ...
    def rows(self) -> list[RpcTime]: ...
