"""PopTable: groups, topics and filters for which compiled code serves POPs.

A view is a group, a topic and a filter. Python registers a view after it has served and
checked a POP. The view has the queues of the topic and of the group's retry topics.
Each queue has the progress of the group, which Python's handlers share. A view is valid
until Python removes it, or until one of its topics gets a queue. Belongs to the thread
of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from rmq._fastpath.bytes.name_table cimport (
    Name, find_name, init_names, insert_name, name_key, pick_victim, remove_name,
)
from rmq._fastpath.handlers.checkpoint cimport PopQueue
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.handlers.held_pulls cimport TICK_MS, HeldGroup, HeldPulls
from rmq._fastpath.handlers.pull_table cimport PullTable, PullView, ViewQueue
from rmq._fastpath.log.queue_tail cimport TailSet
from rmq._fastpath.log.waiters cimport Waiter, mark_ready
from rmq._fastpath.reactor.native cimport Frame

cdef enum:
    EARLIER_MS = 50             # time before the client's timeout at which a wait ends


@cython.final
cdef class PopTopic:
    """The queues of one topic, as one group pops them."""

    def __cinit__(
        self,
        str group not None,
        str topic not None,
        *,
        int32_t queue_count,
        tuple tag_codes,
        dict committed,
        int32_t flag=0,
        TailSet tails not None,
    ):
        """`committed` has the group's offsets by queue id, and changes with them.

        None: there is no offset, and Python reads queues with messages. `flag` is 1 or
        2 for the forms of a retry topic.
        """
        self.flag = flag
        self.topic, self.topic_bytes = topic, topic.encode()
        self.queue_count = queue_count
        self.committed = committed
        self.pulls = PullView(
            group, topic, "", sub_version=0, tag_codes=tag_codes, flags={}
        )
        self.positions = [None] * queue_count
        self.watch = tails.watch(topic)
        self.known_queues = self.watch.new_queues

    def register(self, int32_t queue_id, PopQueue position, source):
        """Register a queue.

        Without a position the group has not popped it yet. `source` is (queue, file of
        the entry at the position or None); None: the queue never had a message.
        """
        self.positions[queue_id] = position
        if source is not None:
            self.pulls.register(source[0], source[1])


@cython.final
cdef class PopView:
    """A group, a topic and a filter."""

    def __cinit__(
        self, tuple key not None, PopTopic own not None, tuple retries not None,
        *, int32_t priority=0, int32_t chance=0, int32_t priority_chance=0,
        bint shows_retry_topic=False,
    ):
        """`key` is group, topic, type and text of the filter, as requests have them.

        A draw below `priority` reads the queues in the order of their ids. A draw below
        `chance` begins with the first of `retries` that has messages; below `priority`,
        a draw below `priority_chance` does this.
        """
        self.key = key
        self.name = name_key(list(key))
        self.own = own
        self.retries = retries
        self.priority = priority
        self.chance, self.priority_chance = chance, priority_chance
        self.shows_retry_topic = shows_retry_topic

    @property
    def is_current(self):
        """True until one of its topics gets a queue."""
        cdef PopTopic topic
        for topic in (self.own, *self.retries):
            if topic.watch.new_queues != topic.known_queues:
                return False
        return True

    @property
    def has_served(self):
        """True if `take_served` has something to return."""
        cdef PopTopic topic
        for topic in (self.own, *self.retries):
            if topic.pulls.has_served:
                return True
        return False

    def take_served(self):
        """Return [(topic, queue id, reads, messages, bytes, end)] since the last call.

        `end` is the offset after the last message.
        """
        cdef PopTopic topic
        return [
            (topic.topic, *served[:5])
            for topic in (self.own, *self.retries)
            for served in topic.pulls.take_served()
        ]

    cdef HeldGroup *group_of(self, int64_t queue_id) noexcept:
        """Return the group of POPs that wait for a queue, negative: for any queue.

        NULL: no POP ever waited for it.
        """
        if queue_id < 0:
            return self.popping
        if queue_id >= self.own.pulls.queue_count:
            return NULL
        return self.own.pulls.queues[queue_id].group

    cdef void wake_waiting(self) noexcept:
        """Let the group's POPs and notifications that wait look for messages.

        These are all of the view, and those of other filters for any queue.
        """
        cdef Waiter *waiter = self.own.watch.waiters
        cdef HeldGroup *group
        cdef PopView other
        cdef int32_t i
        while waiter != NULL:
            other = <PopView>(<HeldGroup *>waiter).view
            if other.own.pulls.group == self.own.pulls.group:
                mark_ready(waiter)
            waiter = waiter.next_of_queue
        for i in range(self.own.pulls.queue_count if self.queue_groups else 0):
            group = self.own.pulls.queues[i].group
            if group != NULL:
                mark_ready(&group.waiter)

    def topic_of(self, str name not None):
        """Return the topic or retry topic of this name, or None."""
        cdef PopTopic topic
        for topic in (self.own, *self.retries):
            if topic.topic == name:
                return topic
        return None


@cython.final
cdef class PopTable:
    """State that all handlers of POPs share."""

    def __cinit__(
        self, PullTable pulls not None, CheckpointTable checkpoints not None, *,
        draw not None, on_remaining not None, on_work not None,
        str broker_name not None, int32_t revive_queues, int64_t invisible_limit_ms,
        int32_t version,
    ):
        """POPs read through `pulls`, and add to `checkpoints`.

        `draw()` returns a number from 0 to 1, without 1: where a POP begins.
        `on_remaining(view, queue_id)` is called after a POP that has left messages,
        while requests wait for the topic. `on_work()` is for `held` and `notices`, see
        `HeldPulls`.
        """
        self.pulls = pulls
        self.checkpoints = checkpoints
        self.draw = draw
        self.on_remaining = on_remaining
        self.held, self.notices = HeldPulls(on_work), HeldPulls(on_work)
        self.broker_name = broker_name.encode()
        self.revive_queues = revive_queues
        self.invisible_limit_ms = invisible_limit_ms
        self.version = version
        self.views = {}
        self.drawn = -1
        init_names(&self.names)

    def __dealloc__(self):
        free(self.names.slots)

    def __len__(self):
        return len(self.views)

    cpdef int draw_start(self) except -1:
        """Return a number from 0 to 99, the same until a POP is answered."""
        if self.drawn < 0:
            self.drawn = <int32_t>(100 * <double>self.draw())
        return self.drawn

    cpdef int32_t next_revive_queue(self) noexcept:
        """Return the revive queue of the next POP that is answered: each in turn."""
        return <int32_t>(self.pops % self.revive_queues)

    cpdef void count_pop(self) noexcept:
        """Count a POP that is answered; the next one gets other numbers."""
        self.pops += 1
        self.drawn = -1

    def add(self, PopView view not None):
        """Register a view; it replaces one with the same key."""
        self.remove(view)
        insert_name(&self.names, view.name, <void *>view)
        self.views[view.name] = view

    def remove(self, PopView view not None):
        """Leave the requests of a view to Python, also those that wait."""
        cdef PopView known = self.views.pop(view.name, None)
        cdef ViewQueue *queue
        cdef int32_t i
        if known is None:
            return
        remove_name(&self.names, known.name, <void *>known)
        if known.waiting != NULL:
            self.notices.return_group(known.waiting)
            known.waiting = NULL
        if known.popping != NULL:
            self.held.return_group(known.popping)
            known.popping = NULL
        for i in range(known.own.pulls.queue_count if known.queue_groups else 0):
            queue = &known.own.pulls.queues[i]
            if queue.group != NULL:
                self.held.return_group(queue.group)
                queue.group = NULL
        known.queue_groups = 0

    def pick_victim(self):
        """Return a view to evict, or None."""
        return <PopView>pick_victim(&self.names).value if self.views else None

    cdef void count_reads(
        self, int64_t queues, int64_t messages, int64_t missed
    ) noexcept nogil:
        """Count reads of queues, for the statistics of the store."""
        self.pulls.found += queues
        self.pulls.messages += messages
        self.pulls.missed += missed
        self.uncounted += messages

    cdef int64_t time_left(self, int64_t poll_ms, int64_t born_ms) except -1:
        """Return the milliseconds for which a request waits; its tick may end later.

        The client's clock is used only if it differs by less than `poll_ms` from the
        broker's clock.
        """
        cdef int64_t passed_ms = 0
        poll_ms = min(poll_ms, self.held.suspend_limit_ms)
        if born_ms:
            passed_ms = <int64_t>self.checkpoints.clock_ms() - born_ms
            if not 0 <= passed_ms <= poll_ms:
                passed_ms = 0
        return max(<int64_t>1, poll_ms - passed_ms - EARLIER_MS - TICK_MS)

    cdef void *find_view(self, const Frame *frame) noexcept nogil:
        """Return the view of a request, or NULL.

        Its first four fields are group, topic, type and text of the filter.
        """
        cdef Name names[4]
        cdef int i
        if frame.fields[0].data == NULL or frame.fields[1].data == NULL:
            return NULL
        for i in range(4):
            names[i].data, names[i].size = b"", 0
            if frame.fields[i].data != NULL:
                if frame.fields[i].escaped:
                    return NULL
                names[i].data = frame.fields[i].data
                names[i].size = frame.fields[i].size
        return find_name(&self.names, names, 4)
