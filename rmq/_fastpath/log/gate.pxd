"""A gate between two threads: one opens it, the other waits for it and closes it.

Opening an open gate costs one atomic swap.  Waiting may have a time limit on the
monotonic clock, which semaphores do not offer everywhere.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #ifndef RMQ_GATE
    #define RMQ_GATE
    #include <pthread.h>
    #include <stdint.h>
    #include <time.h>
    typedef struct {
        pthread_mutex_t mutex;
        pthread_cond_t opened;
        int is_open;
    } rmq_gate;
    static inline void rmq_gate_init(rmq_gate *gate) {
        pthread_condattr_t how;
        pthread_condattr_init(&how);
        pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
        pthread_mutex_init(&gate->mutex, NULL);
        pthread_cond_init(&gate->opened, &how);
        pthread_condattr_destroy(&how);
        gate->is_open = 0;
    }
    static inline void rmq_gate_destroy(rmq_gate *gate) {
        pthread_cond_destroy(&gate->opened);
        pthread_mutex_destroy(&gate->mutex);
    }
    static inline void rmq_gate_open(rmq_gate *gate) {
        if (__atomic_exchange_n(&gate->is_open, 1, __ATOMIC_ACQ_REL)) return;
        pthread_mutex_lock(&gate->mutex);
        pthread_cond_signal(&gate->opened);
        pthread_mutex_unlock(&gate->mutex);
    }
    /* Wait until it is open and close it; 0 after `limit_ns`. Below 0 there is no
    limit. */ static inline int rmq_gate_pass(rmq_gate *gate, int64_t limit_ns) { struct
    timespec end;
        int failed = 0;
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += limit_ns / 1000000000;
        end.tv_nsec += limit_ns % 1000000000;
        if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
        pthread_mutex_lock(&gate->mutex);
        while (!__atomic_load_n(&gate->is_open, __ATOMIC_ACQUIRE) && !failed)
            failed = limit_ns < 0
                ? pthread_cond_wait(&gate->opened, &gate->mutex)
                : pthread_cond_timedwait(&gate->opened, &gate->mutex, &end);
        pthread_mutex_unlock(&gate->mutex);
        return __atomic_exchange_n(&gate->is_open, 0, __ATOMIC_ACQ_REL);
    }
    #endif
    """
    ctypedef struct Gate "rmq_gate":
        pass
    void init_gate "rmq_gate_init"(Gate *gate) noexcept nogil
    void destroy_gate "rmq_gate_destroy"(Gate *gate) noexcept nogil
    void open_gate "rmq_gate_open"(Gate *gate) noexcept nogil
    bint pass_gate "rmq_gate_pass"(Gate *gate, int64_t limit_ns) noexcept nogil
