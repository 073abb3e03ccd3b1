"""Peer: the state of a connection of HTTP/2: streams, windows, limits of its rate."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from rmq._fastpath.http2.hpack cimport free_table, init_table, table_memory
from rmq._fastpath.http2.streams cimport Stream, free_streams
from rmq._fastpath.reactor.buffers cimport MemoryBudget, release_buffer

cdef enum:
    MILLISECONDS = 1000


cdef Peer *make_peer(
    uint32_t index, int64_t now_ms, MemoryBudget *budget
) noexcept nogil:
    """Return the state of a new connection, or NULL without memory."""
    cdef Peer *peer = <Peer *>calloc(1, sizeof(Peer))
    if peer == NULL:
        return NULL
    budget.used += sizeof(Peer)
    peer.index = index
    init_table(&peer.headers)
    peer.send_window = peer.initial_window = DEFAULT_WINDOW
    peer.receive_window = DEFAULT_WINDOW
    peer.frame_size = DEFAULT_FRAME_SIZE
    peer.resets.left = RESET_LIMIT
    peer.empty_frames.left = EMPTY_FRAME_LIMIT
    peer.resets.at_ms = peer.empty_frames.at_ms = now_ms
    return peer


cdef void free_peer(Peer *peer, MemoryBudget *budget) noexcept nogil:
    """Free the state with all streams."""
    budget.used -= sizeof(Peer) + peer.waiting_size + table_memory(&peer.headers)
    free_streams(&peer.streams, budget)
    free_table(&peer.headers)
    release_buffer(&peer.block, budget)
    free(peer)


cdef int64_t peer_size(const Peer *peer) noexcept nogil:
    """Return the memory of a connection, without the spare room of its buffers."""
    cdef int64_t size = sizeof(Peer) + table_memory(&peer.headers)
    if peer.streams.places != NULL:
        size += (peer.streams.mask + 1) * sizeof(Stream)
    size += peer.late_size + peer.part_size + peer.metadata_size
    return size + peer.block.capacity + peer.waiting_size


cdef bint take_tokens(
    Bucket *bucket, int64_t cost, int64_t per_s, int64_t limit, int64_t now_ms
) noexcept nogil:
    """Take `cost` from a bucket that fills with `per_s` up to `limit`.

    False if it is empty. A cost below zero fills it.
    """
    cdef int64_t gained = (now_ms - bucket.at_ms) * per_s // MILLISECONDS
    if gained > 0:
        bucket.left = min(bucket.left + gained, limit)
        bucket.at_ms = now_ms
    bucket.left = min(bucket.left - cost, limit)
    return bucket.left >= 0
