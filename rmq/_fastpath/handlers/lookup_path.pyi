from collections.abc import Callable, Iterable
from typing import Any, final

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.reactor.native import NativeHandler

REASONS: tuple[str, ...]

@final
class LookupPath(NativeHandler):
    def __init__(
        self,
        look_up: Callable[..., Any],
        *,
        texts: Iterable[str] = (),
        numbers: Iterable[str] = (),
        absent: Iterable[str] = (),
        has_offset: bool,
        version: int,
        commits: CommitTable | None = None,
        body_limit: int = 0,
    ) -> None: ...
