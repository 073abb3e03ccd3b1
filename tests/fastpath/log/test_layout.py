"""Sizes and places, written here again because other programs share the files."""

import struct

from rmq._fastpath.log.layout import (
    QueueEntryLayout,
    RecordFlag,
    RecordLayout,
    RecordMagic,
)


def test_record_heads_add_up():
    head = struct.calcsize(">iIiiiqqiq")
    tail = struct.calcsize(">8sq8siqi") + struct.calcsize(">bh")
    assert head == RecordLayout.BORN_HOST_AT
    assert head + tail == RecordLayout.FIXED_SIZE_V1 == RecordLayout.FIXED_SIZE_V2 - 1


def test_magic_codes_as_signed_numbers():
    signed = [struct.unpack(">i", struct.pack(">I", magic))[0] for magic in RecordMagic]
    assert signed == [-626843481, -626843477, -875286124]


def test_flags_and_entry():
    assert RecordFlag.TRANSACTION_ROLLBACK == RecordFlag.TRANSACTION_MASK == 0xC
    assert (RecordFlag.BORN_HOST_V6, RecordFlag.STORE_HOST_V6) == (16, 32)
    assert struct.calcsize(">qiq") == QueueEntryLayout.ENTRY_SIZE
    assert QueueEntryLayout.FILLER_SIZE == 2**31 - 1
