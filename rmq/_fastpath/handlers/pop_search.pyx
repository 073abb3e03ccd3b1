"""Finds the messages of a POP: queue after queue, until the answer is full.

It reads in the order of the Python handler and changes nothing: its caller moves the
positions. It declines a queue that the group has not popped yet. It also declines a
queue whose position is not the latest, because a client has committed a larger offset.
It reads nothing from the disk.
Belongs to the thread of the reactor.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.handlers.held_pulls cimport Pull
from rmq._fastpath.handlers.checkpoint cimport PopQueue
from rmq._fastpath.handlers.pop_table cimport PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_search cimport (
    NOTHING_MATCHES, OUTSIDE, PullReply, find_messages, visible_end,
)
from rmq._fastpath.log.layout cimport RecordLayout
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.reactor.native cimport DECLINED, SERVED, Conn, Verdict, decline

cdef enum:
    OFFSET_END = RecordLayout.QUEUE_OFFSET_AT + 8


cdef void *_tail_of(PopTopic topic, int64_t queue_id) noexcept:
    """Return the tail of a queue; NULL: it never had a message."""
    if queue_id >= topic.pulls.queue_count:
        return NULL
    return topic.pulls.queues[queue_id].tail


cdef int64_t _committed(PopTopic topic, int64_t queue_id) except -2:
    """Return the group's committed offset, -1 without one."""
    offset = topic.committed.get(queue_id)
    return -1 if offset is None else offset


cdef PopQueue _position_of(PopTable table, PopTopic topic, int64_t queue_id):
    """Return the progress in a queue; None: the group has not popped it.

    A POP of another view of the group may have begun it.
    """
    position = topic.positions[queue_id]
    if position is None:
        position = table.checkpoints.queues.get(
            (topic.topic, topic.pulls.group, queue_id)
        )
        topic.positions[queue_id] = position
    return position


cdef int64_t _count_remaining(
    PopTable table, PopTopic topic, int64_t queue_id
) except -2:
    """Return how many messages of a queue the group has not popped; -1: not known."""
    cdef void *tail = _tail_of(topic, queue_id)
    cdef int64_t end, at
    cdef PopQueue position
    if tail == NULL:
        return 0
    if topic.committed is None:
        return -1
    at = max(<int64_t>0, _committed(topic, queue_id))
    position = _position_of(table, topic, queue_id)
    if position is not None:
        if position._is_gone:
            return -1
        at = max(at, position.next_offset)
    end = -1 if (<QueueTail>tail).is_deleted else visible_end(table.pulls, tail)
    return -1 if end < 0 else max(<int64_t>0, end - at)


cdef Verdict _find_retry(
    PopTable table, PopView view, Conn *conn, void **found
) except *:
    """Find the first retry topic that has messages; NULL if no retry topic has
    messages.
    """
    cdef PopTopic retry
    cdef int64_t queue_id, remaining
    found[0] = NULL
    for retry in view.retries:
        if retry.watch.new_queues != retry.known_queues:
            return decline(conn, POSITION)
        for queue_id in range(retry.queue_count):
            remaining = _count_remaining(table, retry, queue_id)
            if remaining < 0:
                return decline(conn, POSITION)
            if remaining:
                found[0] = <void *>retry
                return SERVED
    return SERVED


cdef int _add_offsets(
    PopTable table, const ScanResult *found, int64_t at, PopAnswer *answer
) except -1:
    """Add the queue offsets of found messages to the answer.

    Without gaps the offsets follow each other; with gaps they are read from the
    records.
    """
    cdef uint8_t head[OFFSET_END]
    cdef int64_t i, position, size
    if found.messages == found.examined:
        for i in range(found.messages):
            answer.offsets[answer.count + i] = at + i
        return 0
    i = 0
    for run in range(found.run_count):
        position, size = found.starts[run], found.sizes[run]
        while size > 0:
            table.pulls.reader.copy(head, position, OFFSET_END)
            answer.offsets[answer.count + i] = <int64_t>get64(
                head + RecordLayout.QUEUE_OFFSET_AT
            )
            i += 1
            size -= get32(head)
            position += get32(head)
    return 0


cdef int _add_part(
    PopTable table, PopTopic topic, const ScanResult *found, const Pull *pull,
    const PullReply *pulled,
    PopAnswer *answer,
) except -1:
    """Add the messages of one queue, or its new position without any."""
    cdef PopPart *part = &answer.parts[answer.part_count]
    cdef int i
    part.topic = <void *>topic
    part.queue_id = <int32_t>pull.queue_id
    part.count = <int32_t>found.messages
    part.first = answer.count
    part.start = pull.offset
    part.next_offset = pull.offset + found.examined
    part.size = found.bytes
    answer.remaining += max(<int64_t>0, pulled.high - part.next_offset)
    answer.part_count += 1
    if not found.messages:
        answer.skipped += 1
        return 0
    _add_offsets(table, found, pull.offset, answer)
    part.first_run, part.run_count = answer.run_count, <int32_t>found.run_count
    answer.has_retries |= topic.flag != 0
    for i in range(found.run_count):
        answer.starts[answer.run_count] = found.starts[i]
        answer.sizes[answer.run_count] = found.sizes[i]
        answer.run_count += 1
    answer.count += <int32_t>found.messages
    answer.size += found.bytes
    return 0


cdef Verdict _read_queue(
    PopTable table, PopTopic topic, int64_t queue_id, const PopRequest *request,
    Conn *conn, PopAnswer *answer,
) except *:
    """Read one queue, or count its messages if the answer is full."""
    cdef PopQueue position = _position_of(table, topic, queue_id)
    cdef Pull pull
    cdef PullReply pulled
    cdef ScanResult found
    cdef int64_t remaining, committed
    if answer.count >= request.max_messages:
        remaining = _count_remaining(table, topic, queue_id)
        if remaining < 0:
            return decline(conn, POSITION)
        answer.remaining += remaining
        return SERVED
    if position is None or position._is_gone or topic.committed is None:
        return decline(conn, POSITION)
    committed = _committed(topic, queue_id)
    if committed > position.next_offset:
        return decline(conn, POSITION)
    if _tail_of(topic, queue_id) == NULL:
        answer.missed += 1
        return SERVED
    pull.queue_id, pull.offset = queue_id, position.next_offset
    pull.max_messages = request.max_messages - answer.count
    pull.max_bytes = 0
    answer.parts[answer.part_count].committed = committed
    pull.now_ms = request.now_ms
    pulled.view = <void *>topic.pulls
    pulled.high = -1
    found.messages = found.examined = 0
    if find_messages(table.pulls, conn, &pull, &pulled, &found):
        _add_part(table, topic, &found, &pull, &pulled, answer)
        return SERVED
    if conn.reason == OUTSIDE and pull.offset == pulled.high:
        answer.missed += 1
        return SERVED
    if (
        conn.reason != NOTHING_MATCHES
        or found.removed == found.examined
        or answer.skipped + POP_LIMIT >= PART_LIMIT
    ):
        return decline(conn, NOT_IN_MEMORY)
    answer.missed += 1
    _add_part(table, topic, &found, &pull, &pulled, answer)
    return SERVED


cdef Verdict _read_topic(
    PopTable table, PopTopic topic, int64_t start, const PopRequest *request,
    Conn *conn, PopAnswer *answer,
) except *:
    """Read the queues of a topic, from the queue `start` on."""
    cdef int64_t i, count = topic.queue_count
    for i in range(count):
        if _read_queue(
            table, topic,
            ((count - 1 - i if table.is_reversed else i) + start) % count,
            request, conn, answer,
        ) == DECLINED:
            return DECLINED
    return SERVED


cdef Verdict _read_all(
    PopTable table, PopView view, const PopRequest *request, Conn *conn,
    PopAnswer *answer,
) except *:
    """Read the queues of the topic and of a retry topic, in the order of a draw."""
    cdef PopTopic own = view.own
    cdef int64_t start, chance
    cdef void *retry
    cdef Verdict verdict
    if request.queue_id >= own.queue_count:
        return decline(conn, HEADER)
    if own.watch.new_queues != own.known_queues:
        return decline(conn, POSITION)
    if _find_retry(table, view, conn, &retry) == DECLINED:
        return DECLINED
    start, chance = table.draw_start(), view.chance
    if start < view.priority:
        start, chance = 0, view.priority_chance
    if retry != NULL and start < chance:
        if _read_topic(
            table, <PopTopic>retry, start, request, conn, answer
        ) == DECLINED:
            return DECLINED
        retry = NULL
    if request.queue_id >= 0:
        verdict = _read_queue(table, own, request.queue_id, request, conn, answer)
    else:
        verdict = _read_topic(table, own, start, request, conn, answer)
    if retry == NULL or verdict == DECLINED:
        return verdict
    return _read_topic(table, <PopTopic>retry, start, request, conn, answer)


cdef int64_t count_visible(PopTable table, PopView view, bint *has_hidden) noexcept:
    """Return the number of messages that the queues of a view ever had and readers see;
    -1 if it is not known.

    `has_hidden` becomes true if there are messages that readers do not see yet.
    """
    cdef PopTopic topic
    cdef void *tail
    cdef int64_t end, total = 0
    cdef int32_t i
    for topic in (view.own, *view.retries):
        if topic.watch.new_queues != topic.known_queues:
            return -1
        for i in range(topic.pulls.queue_count):
            tail = topic.pulls.queues[i].tail
            end = 0 if tail == NULL else visible_end(table.pulls, tail)
            if end < 0:
                return -1
            if has_hidden != NULL and tail != NULL:
                has_hidden[0] |= (
                    end < (<QueueTail>tail).next_offset or (<QueueTail>tail).staged > 0
                )
            total += end
    return total


cdef Verdict has_messages(
    PopTable table, void *view, const PopRequest *request, Conn *conn, bint *is_found
) except *:
    """Search for a message that the group has not popped."""
    cdef PopTopic own = (<PopView>view).own
    cdef int64_t i, remaining
    cdef void *retry
    if request.queue_id >= own.queue_count:
        return decline(conn, HEADER)
    if own.watch.new_queues != own.known_queues:
        return decline(conn, POSITION)
    for i in range(own.queue_count if request.queue_id < 0 else 1):
        remaining = _count_remaining(
            table, own, i if request.queue_id < 0 else request.queue_id
        )
        if remaining < 0:
            return decline(conn, POSITION)
        if remaining:
            is_found[0] = True
            return SERVED
    if _find_retry(table, <PopView>view, conn, &retry) == DECLINED:
        return DECLINED
    is_found[0] = retry != NULL
    return SERVED


cdef Verdict find_popped(
    PopTable table, void *view, const PopRequest *request, Conn *conn,
    PopAnswer *answer,
) noexcept with gil:
    """Find the messages of a POP; DECLINED leaves only the draw."""
    answer.remaining = answer.size = 0
    answer.count = answer.run_count = answer.part_count = 0
    answer.skipped = answer.missed = 0
    answer.has_retries = False
    return _read_all(table, <PopView>view, request, conn, answer)
