from typing import final

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq.core.offsets import PhysicalOffset

def index_file_size(slot_count: int, entry_limit: int) -> int: ...
def find_in_log(
    log: Extent,
    position: int,
    end: int,
    topic: bytes,
    key: bytes,
    *,
    is_tags: bool,
    begin_ms: int,
    end_ms: int,
    limit: int,
    only_first: bool = False,
) -> list[PhysicalOffset]: ...

@final
class IndexFile:
    file: MappedFile
    slot_count: int
    entry_limit: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int
    entry_count: int
    def __new__(
        cls, file: MappedFile, slot_count: int, entry_limit: int
    ) -> IndexFile: ...
    is_full: bool
    used_end: int
    def load(self) -> None: ...
    def continue_from(self, before: IndexFile) -> None: ...
    def save(self) -> None: ...
    def add_records(
        self,
        log: Extent,
        position: int,
        stop: int,
        end: int,
        done: int = 0,
        gives_way: bool = False,
    ) -> tuple[RecordStatus, int, int]: ...
    def add_new_keys(
        self,
        keys: NewKeys,
        start: int,
        stop: int,
        end: int,
        done: int = 0,
        gives_way: bool = False,
    ) -> tuple[int, int]: ...
    def find(
        self,
        topic: bytes,
        key: bytes,
        *,
        is_tags: bool,
        begin_ms: int,
        end_ms: int,
        limit: int = 4096,
    ) -> list[int]: ...
