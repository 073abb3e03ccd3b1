"""LogReader: chooses between ring and file for every read of the log.

A record that begins at `ring_floor` or later is in the ring; every earlier record is
complete in its file. A file may still change at and after *written*, so readers stop
there. The thread that owns the store reads in place; other threads get copies, because
the next append may overwrite the bytes.
`read` and `read_record` check blocks with a digest, as `MappedFile.check_blocks` does.
Code that reads in place calls `find_bad` or `check_blocks` before.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.extent cimport Extent, new_extent
from rmq._fastpath.log.layout cimport QueueEntryLayout, RecordFlag, RecordLayout
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.own_record cimport COMPARED_BYTES, is_own_record
from rmq._fastpath.log.queue_tail cimport QueueTail

from rmq.core.errors import RecordDamaged

cdef enum:
    ENTRY_SIZE = QueueEntryLayout.ENTRY_SIZE

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void *data, size_t size, int64_t position)


@cython.final
cdef class LogReader:
    """Reads the bytes of a log."""

    def __cinit__(self, list files not None):
        """`files` are the files of the log in order; their owner changes the list."""
        self.files = files
        self.on_bad_block = None

    cdef int64_t ring_floor(self) noexcept nogil:
        """Return the offset from which the ring has all bytes."""
        return INT64_MAX if self.ring is None else self.ring.load_floor()

    cdef void *file_at(self, int64_t offset) noexcept with gil:
        """Return the mapped file that contains `offset`, or NULL."""
        cdef MappedFile file
        cdef int64_t i
        if not self.files:
            return NULL
        file = self.files[0]
        if offset < file.base_offset:
            return NULL
        i = (offset - file.base_offset) // file.size
        if i >= len(self.files):
            return NULL
        file = self.files[i]
        return NULL if file.address == NULL else <void *>file

    cdef const uint8_t *address_of(self, int64_t offset) noexcept nogil:
        """Return where the record at an appended offset is in memory, or NULL."""
        cdef void *file
        if offset >= self.ring_floor():
            return self.ring.address_of(offset)
        file = self.file_at(offset)
        if file == NULL:
            return NULL
        return (<MappedFile>file).address + (offset - (<MappedFile>file).base_offset)

    cdef uint8_t *copy(self, uint8_t *out, int64_t offset, int64_t size) noexcept nogil:
        """Copy bytes of one log file to `out` and return the end of the copy."""
        cdef int64_t floor = self.ring_floor()
        cdef int64_t of_file = min(size, max(<int64_t>0, floor - offset))
        cdef void *file
        if of_file:
            file = self.file_at(offset)
            memcpy(
                out,
                (<MappedFile>file).address + (offset - (<MappedFile>file).base_offset),
                of_file,
            )
        if of_file < size:
            memcpy(
                out + of_file,
                self.ring.address_of(offset + of_file),
                size - of_file,
            )
        return out + size

    def read(self, int64_t offset, int64_t size):
        """Return a copy of appended bytes; None if they are not all in one file.

        RecordDamaged if one of their blocks has other bytes than were written.
        """
        cdef int64_t bad
        if _file_with(self, offset, size) is None:
            return None
        bad = self.find_bad(offset, size)
        if bad >= 0:
            raise RecordDamaged(offset, bad)
        data = PyBytes_FromStringAndSize(NULL, size)
        self.copy(<uint8_t *>PyBytes_AS_STRING(data), offset, size)
        return data

    def read_damaged(self, int64_t offset, int64_t size):
        """Return a copy of bytes in a bad block; None if they are not all in one file.

        It reads with a system call: OSError if the disk cannot read the bytes. A read
        of the mapping would end the process.
        """
        cdef MappedFile file = _file_with(self, offset, size)
        if file is None:
            return None
        return self.load_from_file(file, offset, offset + size).read(0, size)

    def store_ms_at(self, int64_t offset):
        """Return the store time of the record at `offset`; 0 if it cannot be read.

        The record is not checked.
        """
        return _store_ms_at(self, offset)

    def search_time(
        self, QueueTail queue not None, MappedFile file, int64_t first, int64_t end,
        int64_t timestamp_ms, *, bint upper,
    ):
        """Return the offset of the first entry with a record of a time, or later.

        With `upper` the record must be later; `end` if there is no such entry. The
        entries from `first` to `end` are in `file`; without `file` they are in memory.
        """
        cdef const uint8_t *entries
        cdef int64_t low = first, high = end, middle, store_ms
        if file is not None:
            file.check_range(
                first * ENTRY_SIZE - file.base_offset, (end - first) * ENTRY_SIZE,
                file.size,
            )
            entries = file.address + (first * ENTRY_SIZE - file.base_offset)
        else:
            entries = queue.entry_at(first)
            if entries == NULL or not first <= end <= queue.next_offset:
                raise IndexError(f"entries from {first} to {end} are not in memory")
        while low < high:
            middle = (low + high) // 2
            store_ms = _store_ms_at(self, <int64_t>get64(
                entries + (middle - first) * ENTRY_SIZE
                + QueueEntryLayout.ENTRY_OFFSET_AT
            ))
            if store_ms < timestamp_ms or upper and store_ms == timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def read_record(self, int64_t offset):
        """Return a copy of the record at `offset`, by the size in its first field.

        None if the record is not in a single file; RecordDamaged as `read`. The fields
        of the record are not checked.
        """
        head = self.read(offset, RecordLayout.BLANK_SIZE)
        if head is None:
            return None
        size = <int64_t><int32_t>get32(<const uint8_t *>PyBytes_AS_STRING(head))
        return None if size < RecordLayout.BLANK_SIZE else self.read(offset, size)

    def find_missing(self, int64_t offset, int64_t size):
        """Return (file, position, size) of a range that only the disk has, or None."""
        cdef MappedFile file
        cdef int64_t of_file = min(size, max(<int64_t>0, self.ring_floor() - offset))
        cdef void *found
        if of_file == 0:
            return None
        found = self.file_at(offset)
        if found == NULL:
            raise IndexError(f"{offset} is not in the log")
        file = <MappedFile>found
        unread = file.find_unread(offset - file.base_offset, of_file)
        return None if unread is None else (file, *unread)

    def find_bad(self, int64_t offset, int64_t size):
        """Return the offset of a block with other bytes than were written, and report
        it; -1 if the range has no such block.
        """
        cdef int64_t of_file = min(size, max(<int64_t>0, self.ring_floor() - offset))
        cdef int64_t bad
        cdef void *found = self.file_at(offset)
        if of_file == 0 or found == NULL:
            return -1
        bad = (<MappedFile>found).find_bad(
            offset - (<MappedFile>found).base_offset, of_file
        )
        if bad < 0:
            return -1
        bad += (<MappedFile>found).base_offset
        if self.on_bad_block is not None:
            self.on_bad_block(bad)
        return bad

    def find_wrong_entry(
        self, const uint8_t[::1] entries not None, int64_t queue_id, int64_t first,
        list runs not None, int64_t min_physical_offset,
    ):
        """Return the number of the first queue entry that is not the entry of its
        record; -1 if there is none.

        `runs` are the ranges (offset, size) of records that a scan of these entries has
        chosen. Other entries are fillers, or entries that a filter leaves out, whose
        records are not read. The entries begin at queue offset `first`, and have no
        records before `min_physical_offset`. A `queue_id` of -1 means that the records
        have places in other queues.
        """
        cdef const uint8_t *entry
        cdef const uint8_t *record
        cdef int64_t i, offset, size, begin = -1, end = -1
        cdef Py_ssize_t number = 0
        for i in range(entries.shape[0] // ENTRY_SIZE):
            entry = &entries[i * ENTRY_SIZE]
            offset = <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT)
            size = <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
            if begin == end and number < len(runs):
                begin, size_of_run = runs[number]
                end = begin + size_of_run
                number += 1
            if offset == begin and begin < end:
                record = NULL
                if _file_with(self, offset, COMPARED_BYTES) is not None:
                    record = self.address_of(offset)
                if record == NULL or not is_own_record(
                    record, entry, queue_id, first + i
                ):
                    return i
                begin += size
            elif size != QueueEntryLayout.FILLER_SIZE and offset < min_physical_offset:
                return i
        return -1

    cdef Extent load_from_file(self, MappedFile file, int64_t offset, int64_t end):
        """Copy from a file by one large read, because its pages may not be in memory.
        """
        cdef int64_t size = end - offset, done = 0
        cdef ssize_t got = 0
        cdef uint8_t *memory = <uint8_t *>malloc(size)
        if memory == NULL:
            raise MemoryError
        extent = new_extent(file.path, memory, offset, size, None)
        file.acquire()
        with nogil:
            while done < size:
                got = pread(
                    file.fd, memory + done, size - done,
                    offset + done - file.base_offset,
                )
                if got <= 0:
                    break
                done += got
        file.release()
        if done < size:
            raise OSError(errno, os.strerror(errno), file.path)
        return extent

    def read_extent(self, int64_t offset, int64_t limit, *, bint is_shared=False):
        """Return an extent with whole records from `offset` on, and the end of the
        last.

        A copy has at most `limit` bytes and may end inside a record. With `is_shared`
        any thread may read the extent. Otherwise only the store's thread may read it,
        until the next append. None if the log no longer has `offset`.
        """
        cdef void *found
        cdef MappedFile file
        cdef int64_t end, floor
        while True:
            found = self.file_at(offset)
            if found == NULL:
                return None
            file = <MappedFile>found
            end = file.base_offset + file._write_position
            if self.ring is None:
                return file, end
            floor = self.ring.load_safe_floor() if is_shared else self.ring.load_floor()
            if offset < floor and not is_shared:
                return file, min(end, self.ring.load_written())
            end = min(end, offset + limit)
            if offset < floor:
                end = min(end, self.ring.load_written())
                return self.load_from_file(file, offset, end), end
            if not is_shared:
                return self.ring.view(offset, end), end
            extent = self.ring.copy(offset, end)
            if extent is not None:
                return extent, end


cdef int64_t _store_ms_at(LogReader reader, int64_t offset) noexcept:
    """Return the store time of a record, as `LogReader.store_ms_at`."""
    cdef void *file = reader.file_at(offset)
    cdef const uint8_t *p
    cdef int64_t at = RecordLayout.BORN_HOST_AT + RecordLayout.HOST_SIZE_V4
    if file == NULL or offset + RecordLayout.HEAD_SIZE > (
        (<MappedFile>file).base_offset + (<MappedFile>file)._write_position
    ):
        return 0
    p = reader.address_of(offset)
    if get32(p + RecordLayout.SYS_FLAG_AT) & RecordFlag.BORN_HOST_V6:
        at = RecordLayout.BORN_HOST_AT + RecordLayout.HOST_SIZE_V6
    return <int64_t>get64(p + at)


cdef MappedFile _file_with(LogReader reader, int64_t offset, int64_t size):
    """Return the file that has all of these bytes; None if there is none."""
    cdef void *found = reader.file_at(offset)
    cdef MappedFile file
    if found == NULL or size < 0:
        return None
    file = <MappedFile>found
    return file if offset + size <= file.base_offset + file._write_position else None
