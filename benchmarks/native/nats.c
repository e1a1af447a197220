/* NATS JetStream: every message published with a reply to acknowledge it, and a consumer that pulls. The stream has the
 * name of the topic and stores the subject of that name. */

#include <unistd.h>

#include "peer.h"

enum { MAX_LINE = 8192 };

/* The size of what begins with a line, as that line tells; 0 if not all of it is there. */
static size_t size_of(const uint8_t *at, size_t size) {
    const uint8_t *end = memchr(at, '\n', size);
    if (!end) {
        if (size > MAX_LINE) die("NATS: a line without an end");
        return 0;
    }
    size_t line = (size_t)(end - at) + 1;
    if (at[0] == '-') die("NATS says: %.*s", (int)line, (const char *)at);
    if (memcmp(at, "MSG ", 4) && memcmp(at, "HMSG ", 5)) return line;
    const uint8_t *digits = end - 1;
    while (digits > at && digits[-1] != ' ') digits--;
    size_t all = line + strtoul((const char *)digits, NULL, 10) + 2;
    return all <= size ? all : 0;
}

/* The payload of a MSG, headers and all. */
static const uint8_t *payload_of(const uint8_t *at, size_t size, size_t *payload_size) {
    const uint8_t *payload = (const uint8_t *)memchr(at, '\n', size) + 1;
    *payload_size = size - (size_t)(payload - at) - 2;
    return payload;
}

static bool holds(const uint8_t *at, size_t size, const char *text) { return memmem(at, size, text, strlen(text)); }

static bool is_pong(struct peer *peer, const uint8_t *at, size_t size) {
    (void)peer;
    return size >= 4 && !memcmp(at, "PONG", 4);
}

static bool is_answer(struct peer *peer, const uint8_t *at, size_t size) {
    (void)peer;
    if (size < 4 || memcmp(at, "MSG ", 4)) return false;
    if (holds(at, size, "\"error\"")) die("NATS says: %.*s", (int)size, (const char *)at);
    return true;
}

/* Whatever comes for this connection comes to one subject. */
static void inbox_of(const struct peer *peer, char *into, size_t size) {
    snprintf(into, size, "_INBOX.load.%d.%d", (int)getpid(), peer->number);
}

static void open_writer(struct peer *peer) {
    char inbox[64], hello[256];
    inbox_of(peer, inbox, sizeof inbox);
    int size = snprintf(hello, sizeof hello,
                        "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,"
                        "\"lang\":\"c\",\"version\":\"1\"}\r\nSUB %s 1\r\nPING\r\n",
                        inbox);
    say(peer, hello, (size_t)size);
    hear_until(peer, is_pong, size_of);
}

static void open_reader(struct peer *peer) {
    open_writer(peer);
    char inbox[64], config[512], request[1400];
    const char *topic = peer->options->topics[0];
    inbox_of(peer, inbox, sizeof inbox);
    snprintf(peer->place, sizeof peer->place, "c%dx%d", (int)getpid(), peer->number);
    int body = snprintf(config, sizeof config,
                        "{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"%s\",\"deliver_policy\":\"all\","
                        "\"ack_policy\":\"none\",\"replay_policy\":\"instant\"}}",
                        topic, peer->place);
    int size = snprintf(request, sizeof request, "PUB $JS.API.CONSUMER.DURABLE.CREATE.%s.%s %s %d\r\n%s\r\n", topic,
                        peer->place, inbox, body, config);
    say(peer, request, (size_t)size);
    hear_until(peer, is_answer, size_of);
}

static uint8_t *put_messages(struct peer *peer, uint8_t *at, const uint8_t *values, int count) {
    const struct options *options = peer->options;
    char inbox[64], head[LENGTH_OF_NAME + 96];
    inbox_of(peer, inbox, sizeof inbox);
    int size = snprintf(head, sizeof head, "PUB %s %s %zu\r\n", options->topics[0], inbox, options->message_bytes);
    for (int i = 0; i < count; i++) {
        at = put_bytes(at, head, (size_t)size);
        at = put_bytes(at, values + (size_t)i * options->message_bytes, options->message_bytes);
        at = put_bytes(at, "\r\n", 2);
    }
    return at;
}

static void ask(struct peer *peer) {
    if (peer->promised) return;
    const struct options *options = peer->options;
    uint64_t count = options->max_bytes / options->message_bytes;
    char inbox[64], config[96];
    inbox_of(peer, inbox, sizeof inbox);
    peer->promised = count ? count : 1;
    int body = snprintf(config, sizeof config, "{\"batch\":%" PRIu64 ",\"expires\":60000000000}", peer->promised);
    uint8_t *at = room_in(&peer->out, 512 + LENGTH_OF_NAME);
    peer->out.end += (size_t)sprintf((char *)at, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s %s %d\r\n%s\r\n",
                                     options->topics[0], peer->place, inbox, body, config);
}

static size_t take_line(struct peer *peer, const uint8_t *at, size_t size) {
    size = size_of(at, size);
    if (!size) return 0;
    if (!memcmp(at, "PING", 4)) {
        memcpy(room_in(&peer->out, 6), "PONG\r\n", 6);
        peer->out.end += 6;
    } else if (at[0] == 'H') {
        if (peer->sent) die("NATS refuses a message: %.*s", (int)size, (const char *)at);
        /* There is nothing more, or the request is too old. */
        peer->promised = 0;
    } else if (at[0] == 'M') {
        size_t payload_size;
        const uint8_t *payload = payload_of(at, size, &payload_size);
        if (peer->sent) {
            if (!holds(payload, payload_size, "\"seq\""))
                die("NATS says: %.*s", (int)payload_size, (const char *)payload);
            acknowledged(peer, 1);
        } else {
            if (peer->promised) peer->promised--;
            delivered(peer, payload, payload_size);
        }
    }
    return size;
}

const struct protocol NATS = {
    .name = "nats",
    .open_writer = open_writer,
    .open_reader = open_reader,
    .message_overhead = LENGTH_OF_NAME + 96,
    .put_messages = put_messages,
    .ask = ask,
    .take = take_line,
};
