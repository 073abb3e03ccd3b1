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
        """Encode one record after the staged ones; its size. Sets `tags_code`."""

    def stage_blank(self, rest: int) -> None:
        """Stage the record that ends a file with `rest` bytes left."""

    def staged_bytes(self) -> bytes:
        """A copy of the staged bytes."""

    def commit(self, file: MappedFile, use_pwrite: bool) -> None:
        """Move what is staged to the file's write position and empty the buffer."""

    def discard(self) -> None:
        """Forget what is staged."""

def record_size(
    topic_size: int,
    body_size: int,
    properties_size: int,
    born_host_size: int = 8,
    store_host_size: int = 8,
) -> int:
    """Bytes that a record of these parts takes."""
