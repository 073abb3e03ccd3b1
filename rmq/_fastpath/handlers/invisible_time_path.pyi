from typing import final

from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.pop_table import PopTable

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class InvisibleTimePath(AckPath):
    def __init__(self, pops: PopTable, broker_name: str, version: int) -> None: ...
