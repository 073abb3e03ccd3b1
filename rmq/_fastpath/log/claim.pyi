from typing import Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.watermark import Watermark
from rmq.core.offsets import PhysicalOffset

@final
class Claim:
    store_number: int
    start_offset: PhysicalOffset
    written_offset: PhysicalOffset
    durable_offset: PhysicalOffset
    confirmed_offset: PhysicalOffset
    checkpoint_crcs: tuple[int, int]
    is_same_boot: bool
    is_begun: bool
    def __new__(cls, page: Buffer, boot: bytes) -> Self: ...
    def begin(self, start: int, end: int, durable: Watermark) -> None: ...
    def lower(self, end: int) -> None: ...
    def begin_at(self, start: int) -> None: ...
    def confirm_by(self, confirmed: Watermark) -> None: ...
    def update(self, written: int) -> bool: ...
    def add_checkpoint(self, crc: int) -> None: ...
