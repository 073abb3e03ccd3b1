/* What mapped files, queue files and the claim do to their disk, as a stream of events;
   only if built with RMQ_IO_TRACE, and then only if the environment names a file in
   RMQ_IO_TRACE.

   Event, in the machine's order: u8 kind, 3 bytes 0, i32 descriptor, i64 position,
   i64 size; then `size` bytes for kinds o (opened; its path), w (written) and c (a slot
   of the claim, which has no descriptor).  Other kinds: a allocated, s sync begins, e
   sync ended well, z zeroed. Writers of mapped files and of the claim hold the GIL, and
   one thread writes and syncs a queue file: so an event is before s if and only if its
   write is; e comes before anybody hears of the sync. */
#ifndef RMQ_IO_TRACE_H
#define RMQ_IO_TRACE_H
#include <stdint.h>

#ifdef RMQ_IO_TRACE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>

static void rmq_trace(char kind, int fd, const uint8_t *data, int64_t position,
                      int64_t size) {
    static int target = -2;
    if (target == -2) {
        const char *path = getenv("RMQ_IO_TRACE");
        target = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
                      : -1;
    }
    if (target < 0) return;
    struct {
        char kind, rest[3];
        int32_t fd;
        int64_t position, size;
    } head = {kind, {0, 0, 0}, fd, position, size};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, size}};
    if (writev(target, parts, data ? 2 : 1) < 0) abort();
}
#else
#define rmq_trace(kind, fd, data, position, size) ((void)0)
#endif
#endif
