from typing import Self, final

from rmq._fastpath.log.mapped_file import MappedFile

__pyx_capi__: dict[str, object]

@final
class RecordEncoder:
    """The staging buffer of one store."""

    staged_size: int
    tags_code: int
    store_host: bytes
    def __new__(cls, store_host: bytes) -> Self: ...
    def stage(
        self,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        properties: bytes,
    ) -> int:
        """Encode one record after the staged ones and return its size. Sets
        `tags_code`.
        """

    def stage_blank(self, rest: int) -> None:
        """Stage the blank record of a file whose last `rest` bytes stay unused."""

    def staged_bytes(self) -> bytes:
        """Return a copy of the staged bytes."""

    def commit(self, file: MappedFile, use_pwrite: bool) -> None:
        """Move the staged bytes to the file's write position and empty the buffer."""

    def discard(self) -> None:
        """Drop the staged bytes."""

def record_size(
    topic_size: int,
    body_size: int,
    properties_size: int,
    born_host_size: int = 8,
    store_host_size: int = 8,
) -> int:
    """Return the size of a record with parts of these sizes."""
