/* Preloaded into a broker: system calls fail, or are slow, while a control file says so.

   RMQ_FAULT names the file; it holds the name of a call and an errno, "fdatasync 5", or 0 and by
   how many milliseconds each call takes longer, "pwritev 0 200". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *call) {
    const char *path = getenv("RMQ_FAULT");
    FILE *file = path ? fopen(path, "re") : NULL;
    char name[32] = "";
    int error = 0, slow_ms = 0, found = 0;
    if (!file) return 0;
    found = fscanf(file, "%31s %d %d", name, &error, &slow_ms) >= 2 && strcmp(name, call) == 0;
    fclose(file);
    if (found && slow_ms > 0) usleep((useconds_t)slow_ms * 1000);
    if (found && error) errno = error;
    return found && error;
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    return fails("fdatasync") ? -1 : real(fd);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite");
    return fails("pwrite") ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return pwrite(fd, data, size, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwritev");
    return fails("pwritev") ? -1 : real(fd, parts, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return pwritev(fd, parts, count, at);
}

int fallocate(int fd, int mode, off_t at, off_t size) {
    static int (*real)(int, int, off_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "fallocate");
    return fails("fallocate") ? -1 : real(fd, mode, at, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    return fallocate(fd, mode, at, size);
}
