from typing import final

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class CommitPath(NativeHandler):
    def __init__(self, table: CommitTable, version: int) -> None: ...
