"""Queue files, which are opened only to flush entries, and to read ends at a start.

Layout: entries of 20 bytes (layout.pxd).  The file has its full size from the start, as
Java reads it, but blocks only where entries were written.
No descriptor stays open: `write_entries` opens a group of files, writes, waits for the
disk and closes. A few files are synced one by one; for more files the whole file system
is synced. Each fdatasync of a new file commits the journal and flushes the device:
10,000 files then took a minute instead of some seconds. Crash contract: entries that
`write_entries` reports as written are durable, with the names of new files; any other
page is old or new. Any thread may call; the GIL is not held.
"""

import os

from libc.errno cimport EEXIST, EINTR, EIO, ENOENT, ENOSPC, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, open
from posix.stat cimport fstat, mkdir, struct_stat
from posix.unistd cimport close, fdatasync, fsync, ftruncate, lseek, pread, pwrite

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.layout cimport QueueEntryLayout

cdef extern from "io_trace.h":
    void rmq_trace(
        char kind, int fd, const uint8_t *data, int64_t position, int64_t size
    ) noexcept nogil

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <unistd.h>
    """
    int SEEK_DATA, SEEK_HOLE, O_DIRECTORY
    int SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE, SYNC_FILE_RANGE_WAIT_AFTER
    int sync_file_range(int fd, int64_t start, int64_t size, unsigned int flags) nogil
    int syncfs(int fd) nogil

cdef enum:
    ENTRY_SIZE = QueueEntryLayout.ENTRY_SIZE
    PART_ENTRIES = 204          # entries of one read: one page
    PART_SIZE = PART_ENTRIES * ENTRY_SIZE
    PATH_LIMIT = 4096
    GROUP_LIMIT = 64            # files that are open at the same time
    SINGLE_LIMIT = 8            # files that are synced one by one

cdef struct Write:
    const char *path
    int64_t position
    const uint8_t *data
    int64_t size
    bint is_new
    int fd
    int error


cdef int _make_folders(const char *path) noexcept nogil:
    """Create the folder of a file and its parent; return an errno or 0."""
    cdef char folder[PATH_LIMIT]
    cdef int64_t ends[2]
    cdef int64_t i = strlen(path), found = 0
    if i >= PATH_LIMIT:
        return ENOENT
    memcpy(folder, path, i + 1)
    while i > 0 and found < 2:
        i -= 1
        if folder[i] == b"/":
            ends[found] = i
            found += 1
    while found:
        found -= 1
        folder[ends[found]] = 0
        if mkdir(folder, 0o755) and errno != EEXIST:
            return errno
        folder[ends[found]] = b"/"
    return 0


cdef int _open(Write *write, int64_t file_size) noexcept nogil:
    """Open a file for writing, a new one with its full size; return an errno or 0."""
    cdef int flags = O_WRONLY | O_CLOEXEC | (O_CREAT if write.is_new else 0)
    cdef struct_stat status
    cdef int error
    write.fd = open(write.path, flags, 0o644)
    if write.fd < 0 and errno == ENOENT and write.is_new:
        error = _make_folders(write.path)
        if error:
            return error
        write.fd = open(write.path, flags, 0o644)
    if write.fd < 0:
        return errno
    if write.is_new:
        if fstat(write.fd, &status):
            return errno
        if status.st_size == 0 and ftruncate(write.fd, file_size):
            return errno
    rmq_trace(
        b"o", write.fd, <const uint8_t *>write.path, 0, strlen(write.path)
    )
    return 0


cdef int _write_all(
    int fd, const uint8_t *data, int64_t size, int64_t position
) noexcept nogil:
    """Write all of `data`; return an errno or 0."""
    cdef ssize_t done
    rmq_trace(b"w", fd, data, position, size)
    while size > 0:
        done = pwrite(fd, data, size, position)
        if done < 0 and errno == EINTR:
            continue
        if done <= 0:
            return errno if done else ENOSPC
        data += done
        size -= done
        position += done
    return 0


cdef int _sync(int fd) noexcept nogil:
    """Wait for the disk; return an errno or 0."""
    rmq_trace(b"s", fd, NULL, 0, 0)
    while fdatasync(fd):
        if errno != EINTR:
            return errno
    rmq_trace(b"e", fd, NULL, 0, 0)
    return 0


cdef void _sync_together(Write *group, int64_t count) noexcept nogil:
    """Wait for the data of each file, and then for the file system.

    The first step reports a disk error for the right file; the second step makes
    lengths, blocks and names durable.
    """
    cdef Write *write
    cdef Write *last = NULL
    cdef int64_t i
    cdef int error = 0
    for i in range(count):
        write = &group[i]
        if write.error:
            continue
        rmq_trace(b"s", write.fd, NULL, 0, 0)
        if sync_file_range(
            write.fd,
            write.position,
            write.size,
            SYNC_FILE_RANGE_WAIT_BEFORE
            | SYNC_FILE_RANGE_WRITE
            | SYNC_FILE_RANGE_WAIT_AFTER,
        ):
            write.error = errno
        else:
            last = write
    if last != NULL and syncfs(last.fd):
        error = errno
    for i in range(count):
        write = &group[i]
        if write.error == 0:
            write.error = error
        if write.error == 0:
            rmq_trace(b"e", write.fd, NULL, 0, 0)


cdef int _sync_folder(const char *path) noexcept nogil:
    """Make the names in a folder durable if it exists; return an errno or 0."""
    cdef int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef int error = 0
    if fd < 0:
        return 0 if errno == ENOENT else errno
    while fsync(fd):
        if errno != EINTR:
            error = errno
            break
    close(fd)
    return error


cdef int64_t _write_group(
    Write *group, int64_t count, int64_t file_size
) noexcept nogil:
    """Write as many files as may be open together; return their number."""
    cdef Write *write
    cdef int64_t i, opened = 0
    while opened < count and opened < GROUP_LIMIT:
        write = &group[opened]
        write.error = _open(write, file_size)
        if write.error:
            if write.fd < 0 and opened:
                break                   # a later call may have a descriptor
            opened += 1
            if write.fd < 0:
                break
            continue
        write.error = _write_all(write.fd, write.data, write.size, write.position)
        if write.error == 0:
            sync_file_range(
                write.fd, write.position, write.size, SYNC_FILE_RANGE_WRITE
            )
        opened += 1
    if opened > SINGLE_LIMIT:
        _sync_together(group, opened)
    for i in range(opened):
        write = &group[i]
        if write.error == 0 and opened <= SINGLE_LIMIT:
            write.error = _sync(write.fd)
        if write.fd >= 0:
            close(write.fd)
    return opened


def write_entries(list writes not None, list folders not None, int64_t file_size):
    """Write to files of `file_size` bytes and wait for the disk; return their errnos.

    `writes` are (path, position, entries, is new); a new file is created, with its
    folder. An errno is 0 for a file that was written. The names in `folders` become
    durable, too; if this fails with an OSError, no file counts as written.
    """
    cdef int64_t count = len(writes), done = 0, opened
    cdef bint are_synced = True         # syncfs has made the folders durable, too
    cdef Write *group = <Write *>calloc(count + 1, sizeof(Write))
    cdef const char *folder
    cdef int error = 0
    cdef bytes path, entries
    if group == NULL:
        raise MemoryError
    try:
        for i, (path, position, entries, is_new) in enumerate(writes):
            group[i].path = path
            group[i].position = position
            group[i].data = entries
            group[i].size = len(entries)
            group[i].is_new = is_new
            group[i].fd = -1
        with nogil:
            while done < count:
                opened = _write_group(&group[done], count - done, file_size)
                are_synced = are_synced and opened > SINGLE_LIMIT
                done += opened
        for path in folders if not are_synced else ():
            folder = path
            with nogil:
                error = _sync_folder(folder)
            if error:
                raise OSError(error, os.strerror(error), os.fsdecode(path))
        return [group[i].error for i in range(count)]
    finally:
        free(group)


# -- the end of a file, when the store starts

cdef struct OpenFile:
    int fd
    int error
    int64_t size


cdef bint _is_valid(const uint8_t *entry) noexcept nogil:
    return <int64_t>get64(entry) >= 0 and (
        <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT) > 0
    )


cdef int64_t _read(
    OpenFile *file, int64_t position, uint8_t *out, int64_t size
) noexcept nogil:
    """Read up to the end of the file; return the bytes read, -1 with an error."""
    cdef int64_t done = 0
    cdef ssize_t part
    size = min(size, file.size - position)
    while done < size:
        part = pread(file.fd, out + done, size - done, position + done)
        if part < 0 and errno == EINTR:
            continue
        if part <= 0:
            file.error = errno if part else EIO
            return -1
        done += part
    return done


cdef int64_t _offset_at(OpenFile *file, int64_t number) noexcept nogil:
    """Return the physical offset of an entry; INT64_MAX if it is not valid."""
    cdef uint8_t entry[ENTRY_SIZE]
    if _read(file, number * ENTRY_SIZE, entry, ENTRY_SIZE) != ENTRY_SIZE:
        return INT64_MAX
    return <int64_t>get64(entry) if _is_valid(entry) else INT64_MAX


cdef int64_t _data_end(OpenFile *file) noexcept nogil:
    """Return the end of the first range that has blocks."""
    cdef int64_t end = lseek(file.fd, 0, SEEK_HOLE)
    return file.size if end < 0 else min(end, file.size)


cdef int64_t _valid_end(
    OpenFile *file, int64_t known, int64_t durable_offset
) noexcept nogil:
    """Return the position after the valid entries at the start of the file.

    Entries before `known`, and the entries of records before `durable_offset`,
    certainly exist: so a binary search replaces most of the walk.
    """
    cdef uint8_t part[PART_SIZE]
    cdef int64_t low = 0, high = _data_end(file) // ENTRY_SIZE, middle, size, i
    if 0 < known <= high and _offset_at(file, known - 1) != INT64_MAX:
        low = known
    while high - low > PART_ENTRIES:
        middle = (low + high) // 2
        if _offset_at(file, middle) < durable_offset:
            low = middle + 1
        else:
            high = middle
    while file.error == 0:
        size = _read(file, low * ENTRY_SIZE, part, PART_SIZE)
        for i in range(size // ENTRY_SIZE):
            if not _is_valid(part + i * ENTRY_SIZE):
                return (low + i) * ENTRY_SIZE
        if size < PART_SIZE:
            return low * ENTRY_SIZE + size - size % ENTRY_SIZE
        low += PART_ENTRIES
    return low * ENTRY_SIZE


cdef int64_t _next_data(OpenFile *file, int64_t position) noexcept nogil:
    """Return the position of the first byte at or after `position` that is not zero, or
    -1.
    """
    cdef uint8_t part[PART_SIZE]
    cdef int64_t size, i
    while position < file.size and file.error == 0:
        size = lseek(file.fd, position, SEEK_DATA)
        if size < 0:
            return -1
        position = size
        size = _read(file, position, part, PART_SIZE)
        for i in range(size):
            if part[i]:
                return position + i
        position += max(<int64_t>0, size)
    return -1


cdef int _open_for_look(
    bytes path, int64_t file_size, int flags, OpenFile *file
) except -1:
    cdef const char *name = path
    cdef struct_stat status
    file.error = 0
    file.size = file_size
    with nogil:
        file.fd = open(name, flags | O_CLOEXEC)
        if file.fd < 0 or fstat(file.fd, &status):
            file.error = errno
    if file.error == 0 and status.st_size != file_size:
        close(file.fd)
        raise ValueError(
            f"{os.fsdecode(path)} has {status.st_size} bytes instead of {file_size}"
        )
    return _raise_error(path, file)


cdef int _raise_error(bytes path, OpenFile *file) except -1:
    """Raise the error of a file, if it has one, and close it."""
    if file.error:
        if file.fd >= 0:
            close(file.fd)
        raise OSError(file.error, os.strerror(file.error), os.fsdecode(path))
    return 0


def find_entries_end(
    bytes path not None, int64_t file_size, int64_t known, int64_t durable_offset
):
    """Return (end, data, first, last offset, last size) of a queue file.

    `end` is the position after its valid entries: at least `known`, and all of records
    before `durable_offset`. `data` is True if a later byte is not zero. `first` is the
    physical offset of the first entry, the last two values belong to the last entry; -1
    without entries.
    """
    cdef OpenFile file
    cdef uint8_t entry[ENTRY_SIZE]
    cdef int64_t end = 0, data = -1, first = -1, last = -1, last_size = -1
    _open_for_look(path, file_size, O_RDONLY, &file)
    with nogil:
        end = _valid_end(&file, min(known, file_size // ENTRY_SIZE), durable_offset)
        if file.error == 0:
            data = _next_data(&file, end)
        if end and file.error == 0:
            first = _offset_at(&file, 0)
            if _read(&file, end - ENTRY_SIZE, entry, ENTRY_SIZE) == ENTRY_SIZE:
                last = <int64_t>get64(entry)
                last_size = get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
    _raise_error(path, &file)
    close(file.fd)
    return end, data >= 0, first, last, last_size


def read_entry_at(bytes path not None, int64_t file_size, int64_t position):
    """Return (physical offset, size) of the entry at `position`; size 0 without one."""
    cdef OpenFile file
    cdef uint8_t entry[ENTRY_SIZE]
    memset(entry, 0, ENTRY_SIZE)
    _open_for_look(path, file_size, O_RDONLY, &file)
    with nogil:
        _read(&file, position, entry, ENTRY_SIZE)
    _raise_error(path, &file)
    close(file.fd)
    return <int64_t>get64(entry), <int32_t>get32(
        entry + QueueEntryLayout.ENTRY_SIZE_AT
    )


def clear_entries(bytes path not None, int64_t file_size, int64_t position):
    """Overwrite all bytes from `position` on with zeros, durably.

    Otherwise old entries would become valid again when the log has grown past their
    records.
    """
    cdef OpenFile file
    cdef uint8_t zeros[PART_SIZE]
    cdef int64_t at = position, size
    cdef bint is_changed = False
    cdef const uint8_t *name = path
    memset(zeros, 0, PART_SIZE)
    _open_for_look(path, file_size, O_RDWR, &file)
    with nogil:
        rmq_trace(b"o", file.fd, name, 0, strlen(<const char *>name))
        while file.error == 0:
            at = _next_data(&file, at)
            if at < 0:
                break
            size = min(<int64_t>PART_SIZE, file_size - at)
            file.error = _write_all(file.fd, zeros, size, at)
            at += size
            is_changed = True
        if is_changed and file.error == 0:
            file.error = _sync(file.fd)
    _raise_error(path, &file)
    close(file.fd)
