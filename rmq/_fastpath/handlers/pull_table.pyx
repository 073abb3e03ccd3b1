"""PullTable: registered views of the compiled pulls, and their counters.

A view is a group, a topic and a filter: the filter of the group's heartbeats, or a
filter of the request. The Python handler registers views, one queue at a time,
after it has served a pull.  A change of group, topic or subscription removes them.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from rmq._fastpath.bytes.name_table cimport (
    init_names, insert_name, name_key, remove_name, pick_victim,
)
from rmq._fastpath.bytes.selector cimport Selector
from rmq._fastpath.handlers.commit_table cimport CommitTable
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPulls, new_group
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.scan cimport TAG_LIMIT
from rmq._fastpath.log.tail cimport LogTail
from rmq._fastpath.log.watermark cimport Watermark


@cython.final
cdef class PullView:
    """A group, a topic and a filter, as the Python handler has registered them."""

    def __cinit__(
        self,
        str group not None,
        str topic not None,
        str expression,
        *,
        int64_t sub_version,
        tuple tag_codes,
        dict flags not None,
        Selector selector=None,
    ):
        """`flags` are ext fields at the end of each reply.

        Without an expression it is the view of the group's heartbeats. A `selector` is
        the compiled form of an expression in SQL92.
        """
        cdef Py_ssize_t i
        self.group = group
        self.topic = topic
        self.expression = expression
        self.selector = selector
        names = [group, topic] if expression is None else [group, topic, expression]
        if selector is not None and expression is not None:
            names.append("SQL92")
        self.key = name_key(names)
        self.sub_version = sub_version
        self.code_count = -1
        if tag_codes is not None and len(tag_codes) <= TAG_LIMIT:
            self.code_count = len(tag_codes)
            self.codes = <int64_t *>malloc((self.code_count + 1) * sizeof(int64_t))
            if self.codes == NULL:
                raise MemoryError
            for i in range(self.code_count):
                self.codes[i] = tag_codes[i]
        self.flags = ReplyFields(flags)
        self.tails = []
        self.maps = []

    def __dealloc__(self):
        free(self.codes)
        free(self.queues)

    def register(self, QueueTail queue not None, MappedFile file):
        """Register a queue; `file` is the file with the entries that are read now, or
        None.
        """
        cdef int32_t queue_id = queue.queue_id
        cdef ViewQueue *known
        if not 0 <= queue_id < QUEUE_LIMIT:
            return
        if queue_id >= self.queue_count:
            self.grow(queue_id + 1)
        known = &self.queues[queue_id]
        if known.group != NULL and known.tail != <void *>queue:
            return      # pulls wait in a deleted queue, and have to end first
        self.tails[queue_id] = queue
        known.tail = <void *>queue
        if file is not None:
            self.maps[queue_id] = file
            known.map = <void *>file

    cdef int grow(self, int32_t wanted) except -1:
        """Make room for each id below `wanted`."""
        cdef void *grown
        wanted = min(max(wanted, 2 * self.queue_count), <int32_t>QUEUE_LIMIT)
        grown = realloc(self.queues, wanted * sizeof(ViewQueue))
        if grown == NULL:
            raise MemoryError
        self.queues = <ViewQueue *>grown
        memset(
            &self.queues[self.queue_count], 0,
            (wanted - self.queue_count) * sizeof(ViewQueue),
        )
        self.tails.extend([None] * (wanted - self.queue_count))
        self.maps.extend([None] * (wanted - self.queue_count))
        self.queue_count = wanted
        return 0

    def take_served(self):
        """Return [(queue id, pulls, messages, bytes, end, token)] since the last call.

        `end` is the offset after the last message, `token` is the token of its
        connection.
        """
        cdef int32_t i
        cdef Served *served
        taken = []
        for i in range(self.queue_count if self.has_served else 0):
            served = &self.queues[i].served
            if served.pulls:
                taken.append((
                    i, served.pulls, served.messages, served.size,
                    served.next_offset, served.token,
                ))
                served.pulls = served.messages = served.size = 0
        self.has_served = False
        return taken


@cython.final
cdef class PullTable:
    """State that the handlers of all pull codes share."""

    def __cinit__(
        self,
        LogTail log not None,
        LogReader reader not None,
        Watermark durable,
        *,
        int64_t hot_window,
        tuple hot_limits not None,
        tuple cold_limits not None,
        int64_t scan_bytes,
        int32_t version,
        CommitTable commits not None,
        on_work,
    ):
        """Pulls read through `reader` and stop at `durable`.

        Limits are (messages, bytes) of a pull that begins in the last `hot_window`
        bytes of the log, and of a pull that begins before them. `commits` gets the
        offsets that pulls commit. `on_work` is called when Python has to continue held
        pulls.
        """
        self.log = log
        self.reader = reader
        self.durable = durable
        self.commits = commits
        self.held = HeldPulls(on_work)
        self.hot_window = hot_window
        self.read_window = INT64_MAX
        self.hot_limits, self.cold_limits = hot_limits, cold_limits
        self.hot_messages, self.hot_bytes = hot_limits
        self.cold_messages, self.cold_bytes = cold_limits
        self.scan_bytes = scan_bytes
        self.version = version
        self.views = {}
        self.chunks = <Chunk *>calloc(CHUNK_LIMIT, sizeof(Chunk))
        if self.chunks == NULL:
            raise MemoryError
        init_names(&self.names)

    def __dealloc__(self):
        free(self.names.slots)
        free(self.chunks)

    def __len__(self):
        return len(self.views)

    # -- views

    def add(self, PullView view not None):
        """Register a view; it replaces one with the same key."""
        self.remove(view)
        insert_name(&self.names, view.key, <void *>view)
        self.views[view.key] = view

    def pick_victim(self):
        """Return a view to evict, or None."""
        return <PullView>pick_victim(&self.names).value if self.views else None

    def remove(self, PullView view not None):
        """Remove a view and leave its pulls to the Python handler.

        Its held pulls return to Python.
        """
        cdef PullView known = self.views.pop(view.key, None)
        cdef int32_t i
        if known is None:
            return
        remove_name(&self.names, known.key, <void *>known)
        for i in range(known.queue_count):
            if known.queues[i].group != NULL:
                self.held.return_group(known.queues[i].group)
                known.queues[i].group = NULL

    cdef HeldGroup *group_of(self, void *view, int64_t queue_id) noexcept nogil:
        """Return the group of a view's held pulls in a queue; NULL without memory."""
        cdef ViewQueue *known = &(<PullView>view).queues[queue_id]
        if known.group == NULL:
            known.group = new_group(
                view, known.tail, &(<QueueTail>known.tail).waiters, self.held
            )
        return known.group

    # -- the log

    def limit_window(self, window):
        """Decline pulls that begin more than `window` bytes before the log's end.

        None: decline none of them.
        """
        self.read_window = INT64_MAX if window is None else window

    cdef int64_t min_offset(self) noexcept with gil:
        """Return the start offset of the log, which is not empty."""
        return (<MappedFile>self.reader.files[0]).base_offset

    cdef int64_t end_offset(self) noexcept nogil:
        """Return the end of the log; -1 while it has no file."""
        if self.log.file is None or self.log.file.address == NULL:
            return -1
        return self.log.file.base_offset + self.log.file._write_position

    cdef bint is_in_memory(
        self, void *file, int64_t position, int64_t size, int64_t now_ms
    ) noexcept nogil:
        """True if a written range of an open file is in the page cache.

        A query to the kernel costs as much as a copy of 4 KiB. So it asks for whole
        chunks, and uses a positive answer for CHUNK_MS.
        """
        cdef int64_t end = position + size
        cdef int64_t start, part_end, known_end
        cdef const uint8_t *address
        cdef Chunk *chunk
        while position < end:
            start = position - position % CHUNK_SIZE
            part_end = min(end, start + CHUNK_SIZE)
            address = (<MappedFile>file).address + start
            chunk = &self.chunks[<uint64_t>address // CHUNK_SIZE % CHUNK_LIMIT]
            if (
                chunk.address != address
                or chunk.size < part_end - start
                or not 0 <= now_ms - chunk.seen_ms < CHUNK_MS
            ):
                known_end = min(
                    start + CHUNK_SIZE, (<MappedFile>file)._write_position
                )
                if (<MappedFile>file).has_pages(start, known_end - start):
                    chunk.address = address
                    chunk.size = known_end - start
                    chunk.seen_ms = now_ms
                elif not (<MappedFile>file).has_pages(position, part_end - position):
                    return False
            position = part_end
        return True
