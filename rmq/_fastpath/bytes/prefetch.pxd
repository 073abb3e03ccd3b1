"""A line of memory on its way into the cache, while the processor does something else.

Worth it where thousands of places are used in turn, and the next ones are known.
"""

cdef extern from *:
    """
    #define rmq_prefetch(place) __builtin_prefetch((place), 1)
    """
    void rmq_prefetch(const void *place) noexcept nogil     # any address will do
