"""Load a cache line before it is used, while the processor does other work.

It is worth its cost where thousands of addresses are used in turn, and the next
addresses are known.
"""

cdef extern from *:
    """
    #define rmq_prefetch(place) __builtin_prefetch((place), 1)
    """
    void rmq_prefetch(const void *place) noexcept nogil     # any address is allowed
