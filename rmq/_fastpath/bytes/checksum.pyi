from typing_extensions import Buffer

__pyx_capi__: dict[str, object]

def crc32(data: Buffer, *, tables_only: bool = False) -> int:
    """CRC-32 as zlib computes it. `tables_only` leaves out the CPU's multiplication."""

def body_crc(data: Buffer) -> int:
    """Return the CRC as records and registrations carry it: without the sign bit."""
