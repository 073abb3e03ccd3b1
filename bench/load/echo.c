/* Echo: the ceiling of a server that frames requests and answers them, and does nothing else.
 *
 * One thread, one epoll set. Every request gets a fixed reply of the size of a broker's answer to
 * a send, in the serialisation of the request, with the request's opaque copied into it. There
 * is one send per connection and wake.
 *
 * Prints "ready PORT" on stdout. Ends by SIGTERM, or by itself after the given number of seconds.
 * Usage: echo SECONDS [CPU]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT_SIZE = 1 << 18, OUTPUT_SIZE = 1 << 20, READY_LIMIT = 256, SECONDS_LIMIT = 3600 };

/* Reply bodies are empty; the texts have the length of a real answer. `0000000000` is patched. */
static const char JSON_REPLY[] =
    "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":"
    "\"DefaultRegion\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":"
    "\"0000000\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":0000000000,"
    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
static const char OPAQUE_KEY[] = "\"opaque\":";

typedef struct {
    int fd;
    size_t input_size, output_size;
    unsigned char input[INPUT_SIZE], output[OUTPUT_SIZE];
} Connection;

static char binary_reply[203];
static size_t json_opaque_at;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t read_u32(const unsigned char *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return ntohl(word);
}

static void write_u32(unsigned char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static void prepare_replies(void) {
    json_opaque_at = (size_t)(strstr(JSON_REPLY, OPAQUE_KEY) - JSON_REPLY) + sizeof OPAQUE_KEY - 1;
    unsigned char *at = (unsigned char *)binary_reply;
    memset(at, 'x', sizeof binary_reply);
    memset(at, 0, 21);                 /* code, language, version, opaque, flag, remark */
    at[12] = 1;                        /* flag: a response */
    write_u32(at + 17, sizeof binary_reply - 21);
    at[21] = 0, at[22] = 1;            /* one pair: key of one byte, the rest its value */
    write_u32(at + 24, sizeof binary_reply - 28);
}

/* Appends the reply to one request; false: the request cannot be framed. */
static int answer(Connection *c, const unsigned char *frame, uint32_t size) {
    uint32_t word = read_u32(frame + 4), header_size = word & 0xFFFFFF;
    if (header_size + 4 > size) return 0;
    const unsigned char *header = frame + 8;
    unsigned char *out = c->output + c->output_size;
    if (word >> 24) {
        write_u32(out, sizeof binary_reply + 4);
        write_u32(out + 4, 1u << 24 | (uint32_t)sizeof binary_reply);
        memcpy(out + 8, binary_reply, sizeof binary_reply);
        memcpy(out + 8 + 5, header + 5, 4);
        c->output_size += 8 + sizeof binary_reply;
        return 1;
    }
    uint32_t tail = header_size < 96 ? header_size : 96;
    const char *from = (const char *)header + header_size - tail;
    const char *key = memmem(from, tail, OPAQUE_KEY, sizeof OPAQUE_KEY - 1);
    if (!key) return 0;
    const char *digits = key + sizeof OPAQUE_KEY - 1, *end = (const char *)header + header_size;
    size_t count = 0, text_size = sizeof JSON_REPLY - 1;
    while (digits + count < end && digits[count] >= '0' && digits[count] <= '9') count++;
    if (count != 10) return 0;         /* the generator's opaques have ten digits */
    write_u32(out, (uint32_t)text_size + 4);
    write_u32(out + 4, (uint32_t)text_size);
    memcpy(out + 8, JSON_REPLY, text_size);
    memcpy(out + 8 + json_opaque_at, digits, 10);
    c->output_size += 8 + text_size;
    return 1;
}

/* False: closed, or broken. A full output buffer stops the drain until the next wake. */
static int drain(Connection *c) {
    size_t at = 0;
    while (c->input_size - at >= 8 && OUTPUT_SIZE - c->output_size >= 512) {
        uint32_t size = read_u32(c->input + at);
        if (size < 4 || size + 4 > INPUT_SIZE) return 0;
        if (c->input_size - at < size + 4) break;
        if (!answer(c, c->input + at, size)) return 0;
        at += size + 4;
    }
    memmove(c->input, c->input + at, c->input_size -= at);
    return 1;
}

static int flush(Connection *c) {
    if (!c->output_size) return 1;
    ssize_t sent = send(c->fd, c->output, c->output_size, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN;
    memmove(c->output, c->output + sent, c->output_size -= (size_t)sent);
    return 1;
}

/* Level-triggered; EPOLLOUT only while output is left, and then no input is taken. */
static int serve(Connection *c) {
    if (c->output_size && !flush(c)) return 0;
    if (c->output_size) return 1;
    ssize_t got = recv(c->fd, c->input + c->input_size, INPUT_SIZE - c->input_size, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return 0;
    if (got > 0) c->input_size += (size_t)got;
    return drain(c) && flush(c);
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&address, size) || listen(fd, 1024)) fail("listen");
    if (getsockname(fd, (void *)&address, &size)) fail("getsockname");
    printf("ready %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void add(int set, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), yes = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Connection *c = malloc(sizeof *c);
    if (!c) fail("malloc");
    c->fd = fd, c->input_size = c->output_size = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

int main(int count, char **arguments) {
    int seconds = count > 1 ? atoi(arguments[1]) : 0;
    if (seconds < 1 || seconds > SECONDS_LIMIT) {
        fprintf(stderr, "usage: echo SECONDS (1 to %d) [CPU]\n", SECONDS_LIMIT);
        return 2;
    }
    alarm((unsigned)seconds);
    if (count > 2) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)atoi(arguments[2]), &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus)) fail("sched_setaffinity");
    }
    prepare_replies();
    int set = epoll_create1(EPOLL_CLOEXEC), listener = listen_on_loopback();
    struct epoll_event event = {.events = EPOLLIN}, ready[READY_LIMIT];
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, listener, &event)) fail("epoll");
    for (;;) {
        int found = epoll_wait(set, ready, READY_LIMIT, -1);
        for (int i = 0; i < found; i++) {
            Connection *c = ready[i].data.ptr;
            if (!c) {
                add(set, listener);
                continue;
            }
            int before = c->output_size > 0, fine = serve(c), after = c->output_size > 0;
            if (!fine) {
                close(c->fd);
                free(c);
            } else if (before != after) {
                struct epoll_event wanted = {.events = after ? EPOLLOUT : EPOLLIN, .data.ptr = c};
                epoll_ctl(set, EPOLL_CTL_MOD, c->fd, &wanted);
            }
        }
    }
}
