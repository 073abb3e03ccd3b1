from typing_extensions import disjoint_base

from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@disjoint_base
class AckPath(NativeHandler):
    def __init__(
        self, table: CheckpointTable, broker_name: str, version: int
    ) -> None: ...
