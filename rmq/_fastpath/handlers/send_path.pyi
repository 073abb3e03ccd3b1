from typing import final

from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.reactor.native import NativeHandler

LONG_NAMES: tuple[str, ...]
SHORT_NAMES: tuple[str, ...]
VARYING: tuple[int, ...]
REASONS: tuple[str, ...]

@final
class SendPath(NativeHandler):
    takes_batches: bool
    def __init__(
        self, table: SendTable, *, has_short_names: bool, takes_batches: bool = False
    ) -> None: ...
