/* Load generator: sends messages to a broker (or to echo), or pulls them, and checks and times
 * every reply.
 *
 * One thread, one epoll set, CONNECTIONS x WINDOW requests in flight, ready-made frames (one for each
 * topic and queue) in which only opaque and key change (of a pull: opaque and offset; the topic's queue 0 must hold
 * as many messages as --pull says). A reply must be framed, carry code 0 and the response
 * flag, and its opaque must be that of a request in flight on the same connection; anything
 * else ends the run with exit code 1. Prints one JSON object on stdout.
 *
 * With --batch it sends requests 320 with so many messages each, which count as one answer.
 * With --in-flight so many requests are in flight in all, over the connections in turn.
 * With --user and --secret it signs the requests. Sends then differ in their opaque only: that is
 * not signed, so one signature serves for all; of pulls there is one for each offset. All are made
 * before the start, and the generator has no work with them.
 *
 * With --redis it sends each message as an XADD to a stream of Redis instead, pipelined, and the
 * reply must be the id of the entry.
 *
 * With --rate so many requests a second are sent, in bursts of a millisecond, unless all are in
 * flight; without it each reply makes room for the next request.
 *
 * Bounds: at most 3600 s; nothing for 5 s ends the run with exit code 1. Targets 127.0.0.1 only.
 * Memory: fixed by connections x window; the histogram has 32 steps for each power of two.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../rmq/_fastpath/bytes/hmac_sha1.h"

enum {
    INPUT_SIZE = 1 << 20, HEADER_LIMIT = 16384, BODY_LIMIT = 1 << 20, CONNECTION_LIMIT = 20000,
    WINDOW_LIMIT = 4096, TOPIC_LIMIT = 65536, QUEUE_LIMIT = 4096, DEFAULT_QUEUES = 8, READY_LIMIT = 256, SILENCE_LIMIT_MS = 5000,
    BUCKETS = 64 * 40, OPAQUE_BASE = 1000000000, KEY_DIGITS = 10, SEND = 10, SEND_V2 = 310,
    SEND_BATCH = 320, BATCH_LIMIT = 4096, PROPERTIES_LIMIT = 8192, PROPERTY_LIMIT = 48,
    PULL = 11, PULL_MESSAGES = 32, REDIS_LINE_LIMIT = 512, REDIS_ID_LIMIT = 41,
};

typedef struct {
    unsigned char *bytes;
    size_t size, opaque_at, key_at;             /* of a pull key_at is where its offset begins */
    size_t signature_at;
    char *signatures;           /* of signed pulls: one for each offset */
} Frame;

typedef struct {
    int fd;
    int binary;                 /* serialisation of its frames and so of its replies */
    Frame *frames;              /* of the topics of queue 0, then of queue 1, and so on */
    uint64_t *sent_ns;          /* by slot; 0: free */
    uint32_t *opaques;          /* by slot; of Redis, which answers in order, a ring of slots */
    uint64_t redis_requests, redis_replies;
    int *idle, idle_count;      /* slots that wait for their time, with --rate */
    size_t input_size, output_size, output_limit;
    unsigned char input[INPUT_SIZE], *output;
} Connection;

static struct {
    int port, connections, window, body_size, code, binary, mixed, topics, queues, cpu, server_pid, pull, redis;
    int properties;             /* of 100 bytes, besides the usual ones */
    int batch;                  /* messages of a request; 0: a request is a message */
    int in_flight;              /* of all connections together; 0: connections x window */
    double seconds, warm_up, rate;      /* rate 0: as fast as the replies come */
    uint64_t messages;          /* 0: as many as the time allows */
    const char *topic;
    int delay_level;            /* 0: none */
    const char *user, *secret;  /* NULL: nothing is signed */
} options = {
    .connections = 4, .window = 64, .body_size = 128, .code = SEND_V2, .topics = 1, .queues = 1,
    .cpu = -1, .seconds = 1, .warm_up = 0.2, .topic = "BenchTopic",
};

static uint64_t histogram[BUCKETS], sequence, answered, measured, pending, received_bytes;
static int set, is_measuring, is_stopping;
static Connection **all;

static void die(const char *why, long value) {
    fprintf(stderr, "generator: %s (%ld)\n", why, value);
    exit(1);
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec time;
    if (clock_gettime(clock, &time)) die("clock_gettime", errno);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
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

static void write_digits(unsigned char *at, uint64_t value) {
    for (int i = KEY_DIGITS - 1; i >= 0; i--, value /= 10) at[i] = (unsigned char)('0' + value % 10);
}

/* -- histogram: 32 linear steps within each power of two, so 3 % wide -- */

static uint64_t slowest_ns;

static void count_latency(uint64_t ns) {
    int power = ns < 64 ? 0 : 63 - __builtin_clzll(ns) - 5;
    uint64_t step = power ? (ns >> power) & 63 : ns;
    int bucket = power * 64 + (int)step;
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    if (ns > slowest_ns) slowest_ns = ns;
}

static double latency_us(double share) {
    uint64_t wanted = (uint64_t)(share * (double)measured), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > wanted) return (double)((uint64_t)(i % 64) << (i / 64)) / 1000;
    }
    return 0;
}

/* -- frames -- */

static const char *NAMES[] = {
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch",
};
static const char *PULL_NAMES[] = {
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "maxMsgBytes", "bname",
};
enum { SIGNATURE_SIZE = 28, FIELDS = 13, OFFSET_FIELD = 3, PROPERTIES_FIELD = 8 };

static unsigned char *add(unsigned char *at, const char *text) {
    size_t size = strlen(text);
    memcpy(at, text, size);
    return at + size;
}

static unsigned char *add_u16_text(unsigned char *at, const char *text, size_t size) {
    at[0] = (unsigned char)(size >> 8), at[1] = (unsigned char)size;
    memcpy(at + 2, text, size);
    return at + 2 + size;
}

static unsigned char *add_json_text(unsigned char *at, const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < 32) at += sprintf((char *)at, "\\u%04x", *text);
        else *at++ = (unsigned char)*text;
    }
    return at;
}

/* The fields are signed in the order of their names; AccessKey comes before all others. */
static void sign(char *signature, const char *const *names, const char *const *values, int body_size) {
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char digest[RMQ_SHA1_SIZE + 1] = {0};
    rmq_hmac_key key;
    rmq_sha1 sha;
    rmq_sha1_init();
    rmq_hmac_prepare(&key, (const uint8_t *)options.secret, strlen(options.secret));
    rmq_hmac_start(&sha, &key);
    rmq_sha1_add(&sha, (const uint8_t *)options.user, strlen(options.user));
    const char *last = "";
    for (int i = 0; i < FIELDS; i++) {
        int next = -1;
        for (int j = 0; j < FIELDS; j++)
            if (strcmp(names[j], last) > 0 && (next < 0 || strcmp(names[j], names[next]) < 0)) next = j;
        rmq_sha1_add(&sha, (const uint8_t *)values[next], strlen(values[next]));
        last = names[next];
    }
    for (int i = 0; i < body_size; i++) rmq_sha1_add(&sha, (const uint8_t *)"b", 1);
    rmq_hmac_end(&sha, &key, digest);
    for (int i = 0; i < SIGNATURE_SIZE; i++) {
        unsigned group = (unsigned)digest[i / 4 * 3] << 16 | (unsigned)digest[i / 4 * 3 + 1] << 8 | digest[i / 4 * 3 + 2];
        signature[i] = ALPHABET[group >> (18 - 6 * (i % 4)) & 63];
    }
    strcpy(signature + SIGNATURE_SIZE - 1, "=");
}

static void fill_properties(char *text) {
    snprintf(text, PROPERTIES_LIMIT, "KEYS\001key0000000000\002UNIQ_KEY\0017F000001000A18B4AAC200000000000A\002"
             "WAIT\001true\002TAGS\001TagA\002");
    if (options.delay_level) sprintf(text + strlen(text), "DELAY\001%d\002", options.delay_level);
    for (int i = 0; i < options.properties; i++) sprintf(text + strlen(text), "property-%02d\001%0100d\002", i, i);
}

static size_t request_body_size(int code) {
    if (code == PULL) return 0;
    if (!options.batch) return (size_t)options.body_size;
    char properties[PROPERTIES_LIMIT];
    fill_properties(properties);
    return (size_t)options.batch * (22 + (size_t)options.body_size + strlen(properties));
}

/* The items of a batch: size, magic, CRC, flag, size of the body, body, size of the properties, properties. */
static void fill_batch(unsigned char *at) {
    char properties[PROPERTIES_LIMIT];
    fill_properties(properties);
    size_t body_size = (size_t)options.body_size, size = 22 + body_size + strlen(properties);
    for (int i = 0; i < options.batch; i++, at += size) {
        write_u32(at, (uint32_t)size);
        write_u32(at + 16, (uint32_t)body_size);
        memset(at + 20, 'b', body_size);
        add_u16_text(at + 20 + body_size, properties, strlen(properties));
    }
}

static Frame build_frame(const char *topic, int queue, int code, int binary) {
    char born_ms[24], queue_id[12], queues[12], properties[PROPERTIES_LIMIT];
    fill_properties(properties);
    snprintf(queue_id, sizeof queue_id, "%d", queue);
    snprintf(queues, sizeof queues, "%d", options.queues > DEFAULT_QUEUES ? options.queues : DEFAULT_QUEUES);
    snprintf(born_ms, sizeof born_ms, "%llu", (unsigned long long)(now_ns(CLOCK_REALTIME) / 1000000));
    const char *values[FIELDS] = {
        "BenchGroup", topic, "TBW102", queues, queue_id, "0", born_ms, "0",
        properties, "0", "false", "16", code == SEND_BATCH ? "true" : "false",
    };
    const char *pull_values[FIELDS] = {
        "BenchGroup", topic, "0", "1000000000", "32", "4", "0", "15000", "*", "0", "TAG", "262144", "broker-a",
    };
    size_t body_size = request_body_size(code);
    unsigned char *bytes = calloc(1, 8 + HEADER_LIMIT + body_size), *header = bytes + 8;
    if (!bytes) die("no memory", 0);
    unsigned char *at = header, *sizes_at = NULL;
    Frame frame = {.bytes = bytes};
    char letters[FIELDS][2] = {{0}};
    const char *names[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        letters[i][0] = (char)('a' + i);
        names[i] = code == PULL ? PULL_NAMES[i] : code == SEND ? NAMES[i] : letters[i];
    }
    if (binary) {
        at[0] = (unsigned char)(code >> 8), at[1] = (unsigned char)code;
        at[3] = 2, at[4] = 1;                            /* language JAVA, version 513 */
        frame.opaque_at = 8 + 5;
        sizes_at = at + 17, at += 21;
    } else {
        at += sprintf((char *)at, "{\"code\":%d,\"extFields\":{", code);
    }
    for (int i = 0; i < FIELDS; i++) {
        const char *name = names[i];
        const char *value = code == PULL ? pull_values[i] : values[i];
        unsigned char *value_at;
        if (binary) {
            at = add_u16_text(at, name, strlen(name));
            write_u32(at, (uint32_t)strlen(value));
            value_at = at + 4;
            at = add(value_at, value);
        } else {
            at += sprintf((char *)at, "%s\"%s\":\"", i ? "," : "", name);
            value_at = at;
            at = add(add_json_text(at, value), "\"");
        }
        if (code == PULL && i == OFFSET_FIELD) frame.key_at = (size_t)(value_at - bytes);
        if (code == PULL) continue;
        if (i == PROPERTIES_FIELD) {
            unsigned char *key = memmem(value_at, (size_t)(at - value_at), "key0", 4);
            frame.key_at = (size_t)(key + 3 - bytes);
        }
    }
    char signature[SIGNATURE_SIZE + 1];
    const char *signed_fields[] = {"AccessKey", options.user, "Signature", signature};
    if (options.user && code == PULL) {
        int batches = options.pull / PULL_MESSAGES;
        char offset[24];
        pull_values[OFFSET_FIELD] = offset;
        frame.signatures = malloc((size_t)batches * sizeof signature);
        if (!frame.signatures) die("no memory", 0);
        for (int i = 0; i < batches; i++) {
            sprintf(offset, "%d", i * PULL_MESSAGES);
            sign(frame.signatures + (size_t)i * sizeof signature, names, pull_values, 0);
        }
        memcpy(signature, frame.signatures, sizeof signature);
    } else if (options.user) {
        sign(signature, names, values, options.body_size);
    }
    for (int i = 0; options.user && i < 4; i += 2) {
        if (binary) {
            at = add_u16_text(at, signed_fields[i], strlen(signed_fields[i]));
            write_u32(at, (uint32_t)strlen(signed_fields[i + 1]));
            at = add(at + 4, signed_fields[i + 1]);
            frame.signature_at = (size_t)(at - bytes) - SIGNATURE_SIZE;
        } else {
            at += sprintf((char *)at, ",\"%s\":\"%s\"", signed_fields[i], signed_fields[i + 1]);
            frame.signature_at = (size_t)(at - bytes) - SIGNATURE_SIZE - 1;
        }
    }
    if (binary) {
        write_u32(sizes_at, (uint32_t)(at - sizes_at - 4));
    } else {
        at = add(at, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
        frame.opaque_at = (size_t)(at - bytes);
        at = add(at, "0000000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}");
    }
    uint32_t header_size = (uint32_t)(at - header);
    write_u32(bytes + 4, (uint32_t)binary << 24 | header_size);
    if (code == SEND_BATCH) fill_batch(at);
    else memset(at, 'b', body_size);
    frame.size = 8 + header_size + body_size;
    write_u32(bytes, (uint32_t)frame.size - 4);
    frame.bytes = realloc(bytes, frame.size);
    return frame;
}

/* The command that adds a message to a stream; nothing in it changes. */
static Frame build_redis_frame(const char *stream) {
    char head[HEADER_LIMIT];
    int size = snprintf(head, sizeof head, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nm\r\n$%d\r\n",
                        strlen(stream), stream, options.body_size);
    Frame frame = {.size = (size_t)size + (size_t)options.body_size + 2};
    frame.bytes = malloc(frame.size);
    if (!frame.bytes) die("no memory", 0);
    memcpy(frame.bytes, head, (size_t)size);
    memset(frame.bytes + size, 'b', (size_t)options.body_size);
    memcpy(frame.bytes + frame.size - 2, "\r\n", 2);
    return frame;
}

/* -- requests -- */

/* Shortens the ten digits of a pull's offset to those of `offset`; the new size of the frame. */
static size_t put_offset(unsigned char *at, const Frame *frame, int binary, uint64_t offset) {
    char digits[24];
    size_t size = (size_t)sprintf(digits, "%llu", (unsigned long long)offset), less = KEY_DIGITS - size;
    unsigned char *value = at + frame->key_at;
    memcpy(value, digits, size);
    memmove(value + size, value + KEY_DIGITS, frame->size - frame->key_at - KEY_DIGITS);
    write_u32(at, (uint32_t)(frame->size - less - 4));
    write_u32(at + 4, (uint32_t)binary << 24 | (uint32_t)(frame->size - less - 8));
    if (binary) {
        write_u32(value - 4, (uint32_t)size);
        write_u32(at + 8 + 17, (uint32_t)(frame->size - less - 8 - 21));
    }
    return frame->size - less;
}

/* Puts what changes into a copy of the frame; its size. */
static size_t fill_frame(Connection *c, const Frame *frame, unsigned char *at, int slot, uint64_t number) {
    uint64_t turns = (uint64_t)(1000000000 / options.window);
    uint32_t opaque = OPAQUE_BASE + (uint32_t)((uint64_t)slot + (uint64_t)options.window * (number % turns));
    c->opaques[slot] = opaque;
    if (c->binary) write_u32(at + frame->opaque_at, opaque);
    else write_digits(at + frame->opaque_at, opaque);
    if (options.pull) {
        uint64_t batches = (uint64_t)(options.pull / PULL_MESSAGES);
        if (frame->signatures)
            memcpy(at + frame->signature_at, frame->signatures + number % batches * (SIGNATURE_SIZE + 1), SIGNATURE_SIZE);
        return put_offset(at, frame, c->binary, number % batches * PULL_MESSAGES);
    }
    if (options.mixed) write_digits(at + frame->key_at, number);
    return frame->size;
}

static void put_request(Connection *c, int slot, uint64_t now) {
    uint64_t number = sequence++;
    Frame *frame = &c->frames[number % ((uint64_t)options.topics * (uint64_t)options.queues)];
    if (c->output_size + frame->size > c->output_limit) die("output buffer", (long)c->output_size);
    unsigned char *at = c->output + c->output_size;
    memcpy(at, frame->bytes, frame->size);
    if (options.redis) {
        c->opaques[c->redis_requests++ % (uint64_t)options.window] = (uint32_t)slot;
        c->output_size += frame->size;
    } else {
        c->output_size += fill_frame(c, frame, at, slot, number);
    }
    c->sent_ns[slot] = now;
    pending++;
}

static void flush(Connection *c) {
    int before = 0;
    if (c->output_size) {
        ssize_t sent = send(c->fd, c->output, c->output_size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) die("send", errno);
        if (sent > 0) memmove(c->output, c->output + sent, c->output_size -= (size_t)sent);
        before = c->output_size > 0;
    }
    static unsigned char waits[1 << 16];                 /* by descriptor: EPOLLOUT is asked for */
    if (waits[c->fd & 0xFFFF] == before) return;
    waits[c->fd & 0xFFFF] = (unsigned char)before;
    struct epoll_event event = {.events = before ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(set, EPOLL_CTL_MOD, c->fd, &event)) die("epoll_ctl", errno);
}

/* -- replies -- */

static long json_number(const unsigned char *header, size_t size, const char *key) {
    const unsigned char *at = memmem(header, size, key, strlen(key));
    if (!at) die("reply without a field of its header", 0);
    long value = 0;
    for (at += strlen(key); at < header + size && *at >= '0' && *at <= '9'; at++) value = value * 10 + (*at - '0');
    return value;
}

static void send_on_next(uint64_t now);

/* Counts a reply, and puts the next request into its slot. */
static void count_reply(Connection *c, int slot, size_t body_size, uint64_t now) {
    if (is_measuring) count_latency(now - c->sent_ns[slot]), measured++, received_bytes += body_size;
    c->sent_ns[slot] = 0;
    answered++, pending--;
    int is_enough = is_stopping || (options.messages && sequence >= options.messages);
    if (options.rate > 0) c->idle[c->idle_count++] = slot;
    else if (is_enough) return;
    else if (options.in_flight) send_on_next(now);
    else put_request(c, slot, now);
}

/* Sends on the connection whose turn it is; one that still waits for its answer is left out. */
static void send_on_next(uint64_t now) {
    static int turn;
    do turn = (turn + 1) % options.connections; while (all[turn]->sent_ns[0]);
    put_request(all[turn], 0, now);
    flush(all[turn]);
}

/* Takes the reply at the head of `size` bytes; its size, 0 if it is not whole yet. */
static size_t take_reply(Connection *c, const unsigned char *frame, size_t size, uint64_t now) {
    if (size < 8) return 0;
    uint32_t rest = read_u32(frame), word = read_u32(frame + 4), header_size = word & 0xFFFFFF;
    if (rest < 4 || rest + 4 > INPUT_SIZE) die("frame size of a reply", rest);
    if (size < rest + 4) return 0;
    const unsigned char *header = frame + 8;
    long code, flag, opaque;
    if (header_size + 4 > rest) die("reply header longer than its frame", header_size);
    if ((int)(word >> 24) != c->binary) die("reply in another serialisation", word >> 24);
    if (c->binary) {
        if (header_size < 21) die("short binary header", header_size);
        code = header[0] << 8 | header[1], opaque = (long)read_u32(header + 5), flag = (long)read_u32(header + 9);
    } else {
        code = json_number(header, header_size, "\"code\":");
        flag = json_number(header, header_size, "\"flag\":");
        opaque = json_number(header, header_size, "\"opaque\":");
    }
    if (code) fprintf(stderr, "%.*s\n", c->binary ? 0 : (int)header_size, header), die("reply code", code);
    if (!(flag & 1)) die("reply without the response flag", flag);
    long slot = (opaque - OPAQUE_BASE) % options.window;
    if (opaque < OPAQUE_BASE || c->opaques[slot] != (uint32_t)opaque || !c->sent_ns[slot]) die("unknown opaque", opaque);
    count_reply(c, (int)slot, rest - 4 - header_size, now);
    return rest + 4;
}

/* The same for Redis, whose replies come in the order of the requests: $15\r\n1795230112758-0\r\n */
static size_t take_redis_reply(Connection *c, const unsigned char *reply, size_t size, uint64_t now) {
    const unsigned char *end = memchr(reply, '\n', size);
    if (!end && size > REDIS_LINE_LIMIT) die("reply of Redis without an end of its line", (long)size);
    if (!end) return 0;
    size_t head = (size_t)(end + 1 - reply);
    long id_size = *reply == '$' ? atol((const char *)reply + 1) : 0;
    if (id_size < 3 || id_size > REDIS_ID_LIMIT) fprintf(stderr, "%.*s", (int)head, reply), die("no id in the reply of Redis", id_size);
    if (size < head + (size_t)id_size + 2) return 0;
    const unsigned char *id = end + 1;
    if (!memchr(id, '-', (size_t)id_size) || memcmp(id + id_size, "\r\n", 2)) die("not the id of an entry", id_size);
    if (c->redis_replies == c->redis_requests) die("reply of Redis without a request", (long)c->redis_replies);
    int slot = (int)c->opaques[c->redis_replies++ % (uint64_t)options.window];
    count_reply(c, slot, (size_t)id_size, now);
    return head + (size_t)id_size + 2;
}

static void receive(Connection *c) {
    ssize_t got = recv(c->fd, c->input + c->input_size, INPUT_SIZE - c->input_size, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("connection ended", errno);
    c->input_size += (size_t)got;
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    size_t at = 0, taken;
    do {
        const unsigned char *reply = c->input + at;
        taken = options.redis ? take_redis_reply(c, reply, c->input_size - at, now) : take_reply(c, reply, c->input_size - at, now);
        at += taken;
    } while (taken);
    memmove(c->input, c->input + at, c->input_size -= at);
}

/* -- the run -- */

static Connection *open_connection(Frame *frames, int binary) {
    Connection *c = calloc(1, sizeof *c);
    if (!c) die("no memory", 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int yes = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&address, sizeof address)) die("connect", errno);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    c->binary = binary;
    c->frames = frames;
    c->sent_ns = calloc((size_t)options.window, sizeof *c->sent_ns);
    c->opaques = calloc((size_t)options.window, sizeof *c->opaques);
    c->idle = calloc((size_t)options.window, sizeof *c->idle);
    c->output_limit = (size_t)options.window * (8 + HEADER_LIMIT + request_body_size(options.batch ? SEND_BATCH : SEND));
    c->output = malloc(c->output_limit);
    if (!c->sent_ns || !c->opaques || !c->idle || !c->output) die("no memory", 0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl", errno);
    return c;
}

static Frame *build_frames(int code, int binary) {
    int count = options.topics * options.queues;
    Frame *frames = calloc((size_t)count, sizeof *frames);
    if (!frames) die("no memory", 0);
    for (int i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, options.topics > 1 ? "%s%d" : "%s", options.topic, i % options.topics);
        frames[i] = options.redis ? build_redis_frame(name) : build_frame(name, i / options.topics, code, binary);
    }
    return frames;
}

static void start(void) {
    Frame *kinds[4] = {0};
    all = calloc((size_t)options.connections, sizeof *all);
    if (!all) die("no memory", 0);
    for (int i = 0; i < options.connections; i++) {
        int kind = options.mixed ? i % 4 : (options.binary ? 1 : 0) + (options.code == SEND ? 2 : 0);
        int binary = kind & 1, code = options.batch ? SEND_BATCH : kind & 2 ? SEND : SEND_V2;
        if (!kinds[kind]) kinds[kind] = build_frames(options.pull ? PULL : code, binary);
        Connection *c = open_connection(kinds[kind], binary);
        all[i] = c;
        for (int slot = 0; slot < options.window; slot++) {
            if (options.rate > 0) c->idle[c->idle_count++] = slot;
            else if (!options.in_flight || i < options.in_flight) put_request(c, slot, now_ns(CLOCK_MONOTONIC));
        }
        flush(c);
    }
}

/* Sends what is due; what cannot be sent because all is in flight is not made up for. */
static void send_due(void) {
    static uint64_t due_ns;
    static int turn;
    uint64_t now = now_ns(CLOCK_MONOTONIC), step = (uint64_t)(1e9 / options.rate);
    if (due_ns + 100000000 < now) due_ns = now;
    for (int tries = 0; due_ns <= now && tries < options.connections; turn = (turn + 1) % options.connections) {
        Connection *c = all[turn];
        if (!c->idle_count && ++tries) continue;
        put_request(c, c->idle[--c->idle_count], now);
        tries = 0, due_ns += step;
    }
    for (int i = 0; i < options.connections; i++) flush(all[i]);
}

static void poll_once(void) {
    static uint64_t replied_ns;
    struct epoll_event ready[READY_LIMIT];
    int is_paced = options.rate > 0 && !is_stopping;
    if (is_paced) send_due();
    int found = epoll_wait(set, ready, READY_LIMIT, is_paced ? 1 : SILENCE_LIMIT_MS);
    if (found || !replied_ns) replied_ns = now_ns(CLOCK_MONOTONIC);
    if (found == 0 && (!is_paced || now_ns(CLOCK_MONOTONIC) - replied_ns > SILENCE_LIMIT_MS * 1000000ull)) die("no reply for 5 s, requests in flight", (long)pending);
    for (int i = 0; i < found; i++) {
        Connection *c = ready[i].data.ptr;
        if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
        flush(c);
    }
}

static void poll_for(double seconds) {
    uint64_t end = now_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
    while ((pending || options.rate > 0) && now_ns(CLOCK_MONOTONIC) < end) poll_once();
}

static void read_options(int count, char **arguments) {
    static const struct option NAMED[] = {
        {"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'}, {"window", 1, 0, 'w'}, {"body", 1, 0, 'b'},
        {"code", 1, 0, 'k'}, {"binary", 0, 0, 'B'}, {"mixed", 0, 0, 'm'}, {"topics", 1, 0, 't'},
        {"queues", 1, 0, 'q'}, {"topic", 1, 0, 'n'}, {"seconds", 1, 0, 's'}, {"warm-up", 1, 0, 'u'},
        {"cpu", 1, 0, 'C'}, {"messages", 1, 0, 'M'}, {"delay-level", 1, 0, 'd'}, {"server-pid", 1, 0, 'P'}, {"pull", 1, 0, 'L'},
        {"rate", 1, 0, 'R'}, {"redis", 0, 0, 'r'}, {"batch", 1, 0, 'a'}, {"properties", 1, 0, 'o'}, {"in-flight", 1, 0, 'f'}, {"user", 1, 0, 'U'}, {"secret", 1, 0, 'S'}, {0},
    };
    for (int option; (option = getopt_long(count, arguments, "", NAMED, NULL)) != -1;) {
        switch (option) {
            case 'p': options.port = atoi(optarg); break;
            case 'c': options.connections = atoi(optarg); break;
            case 'w': options.window = atoi(optarg); break;
            case 'b': options.body_size = atoi(optarg); break;
            case 'k': options.code = atoi(optarg); break;
            case 'B': options.binary = 1; break;
            case 'm': options.mixed = 1; break;
            case 't': options.topics = atoi(optarg); break;
            case 'q': options.queues = atoi(optarg); break;
            case 'n': options.topic = optarg; break;
            case 's': options.seconds = atof(optarg); break;
            case 'u': options.warm_up = atof(optarg); break;
            case 'M': options.messages = strtoull(optarg, NULL, 10); break;
            case 'd': options.delay_level = atoi(optarg); break;
            case 'C': options.cpu = atoi(optarg); break;
            case 'L': options.pull = atoi(optarg); break;
            case 'R': options.rate = atof(optarg); break;
            case 'U': options.user = optarg; break;
            case 'S': options.secret = optarg; break;
            case 'r': options.redis = 1; break;
            case 'a': options.batch = atoi(optarg); break;
            case 'o': options.properties = atoi(optarg); break;
            case 'f': options.in_flight = atoi(optarg); break;
            case 'P': options.server_pid = atoi(optarg); break;
            default: exit(2);
        }
    }
    int fine = options.port > 0 && options.port < 65536 && options.connections > 0 && options.connections <= CONNECTION_LIMIT
        && options.window > 0 && options.window <= WINDOW_LIMIT && options.body_size > 0 && options.body_size <= BODY_LIMIT
        && (options.code == SEND || options.code == SEND_V2) && options.topics > 0 && options.topics <= TOPIC_LIMIT
        && (options.pull == 0 || (options.pull >= PULL_MESSAGES && options.topics == 1 && !options.mixed))
        && !(options.redis && (options.pull || options.mixed || options.binary || options.delay_level))
        && options.batch >= 0 && options.batch <= BATCH_LIMIT && !(options.batch && (options.pull || options.redis || options.mixed))
        && options.in_flight >= 0 && options.in_flight <= options.connections && !(options.in_flight && (options.rate > 0 || options.window > 1))
        && !options.user == !options.secret
        && !(options.user && (options.mixed || options.redis || options.batch || options.code == SEND))
        && options.delay_level >= 0 && options.delay_level <= 18
        && options.rate >= 0 && options.rate <= 1e7 && !(options.rate > 0 && options.messages)
        && options.properties >= 0 && options.properties <= PROPERTY_LIMIT
        && options.queues > 0 && options.queues <= QUEUE_LIMIT && strlen(options.topic) <= 120
        && options.seconds > 0 && options.seconds <= 3600 && options.warm_up >= 0 && options.warm_up <= 60;
    if (!fine) {
        fprintf(stderr, "generator: an option is missing or outside its limits\n");
        exit(2);
    }
}

int main(int count, char **arguments) {
    read_options(count, arguments);
    if (options.cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t)options.cpu, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus)) die("sched_setaffinity", errno);
    }
    clockid_t server_clock = CLOCK_PROCESS_CPUTIME_ID;
    if (options.server_pid && clock_getcpuclockid(options.server_pid, &server_clock)) die("no such server", options.server_pid);
    set = epoll_create1(EPOLL_CLOEXEC);
    start();
    poll_for(options.warm_up);
    is_measuring = 1;
    uint64_t begin = now_ns(CLOCK_MONOTONIC), own = now_ns(CLOCK_PROCESS_CPUTIME_ID), server = now_ns(server_clock);
    poll_for(options.seconds);
    double seconds = (double)(now_ns(CLOCK_MONOTONIC) - begin) / 1e9;
    double server_cpu_s = options.server_pid ? (double)(now_ns(server_clock) - server) / 1e9 : 0;
    double own_cpu_s = (double)(now_ns(CLOCK_PROCESS_CPUTIME_ID) - own) / 1e9;
    is_measuring = 0, is_stopping = 1;
    while (pending) poll_once();
    printf("{\"seconds\":%.6f,\"messages\":%llu,\"answered\":%llu,\"rate\":%.1f,\"server_cpu_s\":%.6f,"
           "\"generator_share\":%.4f,\"bytes\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f}\n",
           seconds, (unsigned long long)measured, (unsigned long long)answered, (double)measured / seconds,
           server_cpu_s, own_cpu_s / seconds, (unsigned long long)received_bytes, latency_us(0.5), latency_us(0.99), latency_us(0.999), (double)slowest_ns / 1000);
    return 0;
}
