/* Preloaded into a process that simulates several nodes: what the C library would ask
   the machine is answered by the simulation.

   Time stands still but for `outside_now`; chance comes from a seed; waits end at once.
   A gate of rmq between two threads is passed in turns: the thread of the simulation
   lets one other run until that waits at a gate again, or ends (`outside_step`).
   Descriptors of the simulated network have the addresses that it gave them.
   Before `outside_begin` everything is the machine's own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))next_of(#name)

enum { THREADS = 256, DESCRIPTORS = 1 << 16, WAITS = 1, ENDED = 2 };

/* Of conditions the C library has an older version, too, which dlsym would find. */
static void *next_of(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found ? found : dlsym(RTLD_NEXT, name);
}

static int is_begun;
static int64_t start_ns, now_ns, slept_ns;
static uint64_t chance;

/* -- begin, time, chance */

void outside_begin(int64_t wall_ns, uint64_t seed) {
    start_ns = wall_ns;
    chance = seed * 2 + 1;
    is_begun = 1;
}

void outside_now(int64_t ns) { now_ns = ns; }

int clock_gettime(clockid_t clock, struct timespec *out) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int64_t ns;
    if (!is_begun) return real(clock, out);
    switch (clock) {
    case CLOCK_REALTIME: case CLOCK_REALTIME_COARSE:
        ns = start_ns + now_ns + slept_ns;
        break;
    case CLOCK_MONOTONIC: case CLOCK_MONOTONIC_RAW: case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        ns = 1000000000000LL + now_ns + slept_ns;
        break;
    default:
        return real(clock, out);
    }
    out->tv_sec = ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted,
                    struct timespec *rest) {
    REAL(int, clock_nanosleep, clockid_t, int, const struct timespec *,
         struct timespec *);
    int64_t ns = wanted->tv_sec * 1000000000LL + wanted->tv_nsec;
    if (!is_begun) return real(clock, flags, wanted, rest);
    if (flags & TIMER_ABSTIME) ns -= 1000000000000LL + now_ns + slept_ns;
    if (ns > 0) slept_ns += ns;
    return 0;
}

ssize_t getrandom(void *out, size_t size, unsigned int flags) {
    REAL(ssize_t, getrandom, void *, size_t, unsigned int);
    uint8_t *bytes = out;
    if (!is_begun) return real(out, size, flags);
    for (size_t at = 0; at < size; at++) {
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        bytes[at] = chance >> 32;
    }
    return size;
}

pid_t getpid(void) {
    REAL(pid_t, getpid, void);
    return is_begun ? 4242 : real();
}

int epoll_wait(int set, struct epoll_event *events, int size, int timeout) {
    REAL(int, epoll_wait, int, struct epoll_event *, int, int);
    return real(set, events, size, is_begun ? 0 : timeout);
}

/* -- disks: who listens hears of each sync; none reaches a disk */

static void (*on_sync)(int);

void outside_listen(void (*listener)(int)) { on_sync = listener; }

static int synced(int fd) {
    on_sync(fd);
    return 0;
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return on_sync ? synced(fd) : real(fd);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return on_sync ? synced(fd) : real(fd);
}

/* The listener hears of a whole disk as of the complement of a descriptor. */
int syncfs(int fd) {
    REAL(int, syncfs, int);
    return on_sync ? synced(~fd) : real(fd);
}

int sync_file_range(int fd, off64_t at, off64_t size, unsigned int flags) {
    REAL(int, sync_file_range, int, off64_t, off64_t, unsigned int);
    return on_sync ? 0 : real(fd, at, size, flags);
}

/* Direct writes would be durable without a sync: rmq falls back to buffered ones. */
int open64(const char *path, int flags, ...) {
    REAL(int, open64, const char *, int, ...);
    va_list rest;
    mode_t mode;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
    if (is_begun && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    mode_t mode;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
    return open64(path, flags, mode);
}

/* Which pages are in memory is chance, too, and not that of the machine: few are not. */
int mincore(void *start, size_t size, unsigned char *seen) {
    REAL(int, mincore, void *, size_t, unsigned char *);
    uint8_t number = 0;
    if (!is_begun) return real(start, size, seen);
    memset(seen, 1, (size + 4095) / 4096);
    getrandom(&number, 1, 0);
    if (number == 0 && size) seen[0] = 0;
    return 0;
}

/* -- sockets */

static struct { struct sockaddr_in here, there; } names[DESCRIPTORS];

static struct sockaddr_in address_of(uint32_t host, uint16_t port) {
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons(port)};
    made.sin_addr.s_addr = htonl(host);
    return made;
}

void outside_name(int fd, uint32_t host, uint16_t port, uint32_t other_host,
                  uint16_t other_port) {
    names[fd].here = address_of(host, port);
    names[fd].there = address_of(other_host, other_port);
}

static int give(const struct sockaddr_in *name, struct sockaddr *out, socklen_t *size) {
    memcpy(out, name, *size < sizeof *name ? *size : sizeof *name);
    *size = sizeof *name;
    return 0;
}

int getsockname(int fd, struct sockaddr *out, socklen_t *size) {
    REAL(int, getsockname, int, struct sockaddr *, socklen_t *);
    if (!is_begun || !names[fd].here.sin_family) return real(fd, out, size);
    return give(&names[fd].here, out, size);
}

int getpeername(int fd, struct sockaddr *out, socklen_t *size) {
    REAL(int, getpeername, int, struct sockaddr *, socklen_t *);
    int result = real(fd, out, size);
    if (result || !is_begun || !names[fd].there.sin_family) return result;
    return give(&names[fd].there, out, size);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    REAL(int, setsockopt, int, int, int, const void *, socklen_t);
    if (is_begun && level == IPPROTO_TCP) return 0;
    return real(fd, level, name, value, size);
}

/* -- threads in turns */

static struct {
    sem_t go;
    pthread_cond_t *at;
    int64_t deadline_ns;
    int state, is_woken;
} threads[THREADS];
static sem_t back;
static int wakes;
static __thread int own = -1;

void outside_wakes(int fd) {
    sem_init(&back, 0, 0);
    wakes = fd;
}

void outside_prepare(int number) {
    sem_init(&threads[number].go, 0, 0);
    threads[number].state = threads[number].is_woken = 0;
    threads[number].at = NULL;
}

void outside_enter(int number) {
    own = number;
    while (sem_wait(&threads[number].go)) {}
}

void outside_leave(void) {
    threads[own].state = ENDED;
    own = -1;
    sem_post(&back);
}

/* Let a thread run until it waits or ends. */
int outside_step(int number) {
    threads[number].at = NULL;
    sem_post(&threads[number].go);
    while (sem_wait(&back)) {}
    return threads[number].state;
}

/* Whether what it waits for has come; until when it waits at most, or -1. */
int outside_is_woken(int number) { return threads[number].is_woken; }
int64_t outside_deadline(int number) { return threads[number].deadline_ns; }

/* Whether a caller is a gate of rmq, and not the interpreter. */
static int is_gate(void *caller) {
    Dl_info found;
    return dladdr(caller, &found) && found.dli_fname
        && strstr(found.dli_fname, "/_fastpath/");
}

static int wait_in_turn(pthread_cond_t *at, pthread_mutex_t *mutex, int64_t deadline) {
    int number = own, is_woken;
    threads[number].at = at;
    threads[number].deadline_ns = deadline;
    threads[number].state = WAITS;
    threads[number].is_woken = 0;
    pthread_mutex_unlock(mutex);
    sem_post(&back);
    while (sem_wait(&threads[number].go)) {}
    pthread_mutex_lock(mutex);
    is_woken = threads[number].is_woken;
    return is_woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *at, pthread_mutex_t *mutex) {
    REAL(int, pthread_cond_wait, pthread_cond_t *, pthread_mutex_t *);
    if (own < 0 || !is_gate(__builtin_return_address(0))) return real(at, mutex);
    return wait_in_turn(at, mutex, -1);
}

int pthread_cond_timedwait(pthread_cond_t *at, pthread_mutex_t *mutex,
                           const struct timespec *end) {
    REAL(int, pthread_cond_timedwait, pthread_cond_t *, pthread_mutex_t *,
         const struct timespec *);
    if (!is_begun) return real(at, mutex, end);
    if (own < 0 || !is_gate(__builtin_return_address(0))) {
        /* The interpreter's lock: the end of its wait, of the simulation's clock, is
           long over for the machine's. Whoever has the lock lets it go. */
        return pthread_cond_wait(at, mutex);
    }
    return wait_in_turn(
        at, mutex, end->tv_sec * 1000000000LL + end->tv_nsec - 1000000000000LL
    );
}

int pthread_cond_signal(pthread_cond_t *at) {
    REAL(int, pthread_cond_signal, pthread_cond_t *);
    uint64_t one = 1;
    for (int number = 0; is_begun && number < THREADS; number++)
        if (threads[number].state == WAITS && threads[number].at == at) {
            threads[number].is_woken = 1;
            if (write(wakes, &one, sizeof one) < 0) abort();
        }
    return real(at);
}
