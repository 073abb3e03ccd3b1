"""System calls of the reactor: epoll, eventfd, sockets, the monotonic clock."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLLET, EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR, EPOLLRDHUP
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_wait(int set, epoll_event *events, int size, int timeout)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int start, int flags)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT, MSG_NOSIGNAL
    ssize_t recv(int fd, void *data, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN, POLLNVAL
    int poll(pollfd *fds, unsigned long count, int timeout_ms)

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/epoll.h>
    #include <time.h>
    #include <unistd.h>
    static inline int64_t rmq_monotonic_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static inline int64_t rmq_thread_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static inline int rmq_epoll_set(
        int set, int how, int fd, uint32_t what, uint64_t id
    ) {
        struct epoll_event event = {.events = what, .data.u64 = id};
        return epoll_ctl(set, how, fd, &event);
    }
    static inline void rmq_eventfd_drain(int fd) {
        uint64_t count;
        ssize_t done = read(fd, &count, sizeof count);
        (void)done; /* empty: another reader was faster */ } static inline void
        rmq_eventfd_wake(int fd) { uint64_t one = 1;
        ssize_t done = write(fd, &one, sizeof one);
        (void)done; /* full: it is awake already */
    }
    """
    int64_t monotonic_ns "rmq_monotonic_ns"() noexcept nogil
    int64_t thread_ns "rmq_thread_ns"() noexcept nogil
    int epoll_set "rmq_epoll_set"(
        int set, int how, int fd, uint32_t what, uint64_t id
    ) noexcept nogil
    void eventfd_drain "rmq_eventfd_drain"(int fd) noexcept nogil
    void eventfd_wake "rmq_eventfd_wake"(int fd) noexcept nogil
