/* Redis Streams: XADD, one entry a message, and XREAD. */

#include "peer.h"

static void open_writer(struct peer *peer) { (void)peer; }

static void open_reader(struct peer *peer) { strcpy(peer->place, "0-0"); }

static uint8_t *put_messages(struct peer *peer, uint8_t *at, const uint8_t *values, int count) {
    const struct options *options = peer->options;
    char head[LENGTH_OF_NAME + 96];
    int size = snprintf(head, sizeof head, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nm\r\n$%zu\r\n",
                        strlen(options->topics[0]), options->topics[0], options->message_bytes);
    for (int i = 0; i < count; i++) {
        at = put_bytes(at, head, (size_t)size);
        at = put_bytes(at, values + (size_t)i * options->message_bytes, options->message_bytes);
        at = put_bytes(at, "\r\n", 2);
    }
    return at;
}

/* One at a time: only the reply tells where the next begins. */
static void ask(struct peer *peer) {
    if (peer->promised) return;
    const struct options *options = peer->options;
    uint64_t count = options->max_bytes / options->message_bytes;
    char number[24];
    int digits = snprintf(number, sizeof number, "%" PRIu64, count ? count : 1);
    uint8_t *at = room_in(&peer->out, 256 + LENGTH_OF_NAME);
    peer->out.end += (size_t)sprintf(
        (char *)at,
        "*8\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$%d\r\n%s\r\n$5\r\nBLOCK\r\n$5\r\n60000\r\n$7\r\nSTREAMS\r\n$%zu\r\n%s\r\n"
        "$%zu\r\n%s\r\n",
        digits, number, strlen(options->topics[0]), options->topics[0], strlen(peer->place), peer->place);
    peer->promised = 1;
}

static void finish_element(struct peer *peer) {
    if (--peer->remaining) return;
    if (peer->sent) acknowledged(peer, 1);
    peer->promised = 0;
}

/* One element: arrays only add to what is awaited, so that a reply can be read while it comes. */
static size_t take_element(struct peer *peer, const uint8_t *at, size_t size) {
    const uint8_t *end = memchr(at, '\r', size < 512 ? size : 512);
    if (!end || (size_t)(end - at) + 2 > size) return 0;
    size_t line = (size_t)(end - at) + 2;
    if (at[0] == '-') die("Redis says: %.*s", (int)(line - 2), (const char *)at);
    if (!peer->remaining) peer->remaining = 1;
    long length = at[0] == '*' || at[0] == '$' ? strtol((const char *)at + 1, NULL, 10) : 0;
    if (at[0] == '*') {
        peer->remaining += (uint64_t)(length > 0 ? length : 0);
        finish_element(peer);
        return line;
    }
    if (at[0] != '$' || length < 0) {
        finish_element(peer);
        return line;
    }
    if (line + (size_t)length + 2 > size) return 0;
    const char *text = (const char *)at + line;
    if (!peer->sent && (size_t)length == peer->options->message_bytes) {
        delivered(peer, at + line, (size_t)length);
    } else if (!peer->sent && (size_t)length < sizeof peer->place && memchr(text, '-', (size_t)length) &&
               text[0] >= '0' && text[0] <= '9') {
        memcpy(peer->place, text, (size_t)length);
        peer->place[length] = '\0';
    }
    finish_element(peer);
    return line + (size_t)length + 2;
}

const struct protocol REDIS = {
    .name = "redis",
    .open_writer = open_writer,
    .open_reader = open_reader,
    .message_overhead = LENGTH_OF_NAME + 96,
    .put_messages = put_messages,
    .ask = ask,
    .take = take_element,
};
