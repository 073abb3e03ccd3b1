/* Moves listeners from all addresses to 127.0.0.1: loaded before libc, by LD_PRELOAD. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

typedef int (*bind_function)(int, const struct sockaddr *, socklen_t);

int bind(int descriptor, const struct sockaddr *address, socklen_t size) {
    bind_function real = (bind_function)dlsym(RTLD_NEXT, "bind");
    if (address->sa_family != AF_INET) {
        return real(descriptor, address, size);
    }
    struct sockaddr_in moved = *(const struct sockaddr_in *)address;
    if (moved.sin_addr.s_addr == htonl(INADDR_ANY) && moved.sin_port != 0) {
        moved.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    return real(descriptor, (const struct sockaddr *)&moved, sizeof moved);
}
