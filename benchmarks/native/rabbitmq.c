/* RabbitMQ's stream protocol: frames of messages that are confirmed, and chunks that are delivered for credit. */

#include "peer.h"

enum {
    DECLARE_PUBLISHER = 1, PUBLISH = 2, PUBLISH_CONFIRM = 3, PUBLISH_ERROR = 4, SUBSCRIBE = 7, DELIVER = 8, CREDIT = 9,
    PEER_PROPERTIES = 0x11, SASL_HANDSHAKE = 0x12, SASL_AUTHENTICATE = 0x13, TUNE = 0x14, OPEN = 0x15, CLOSE = 0x16,
    RESPONSE = 0x8000, OK = 1, FROM_FIRST = 1, CHUNK_HEADER = 48, CHUNKS_AHEAD = 10
};

static uint8_t *put_text(uint8_t *at, const char *text) {
    size_t size = strlen(text);
    return put_bytes(put16(at, (uint16_t)size), text, size);
}

/* A frame begins with its size, which is known last. */
static uint8_t *begin_frame(uint8_t *frame, int key) { return put16(put16(frame + 4, (uint16_t)key), 1); }

static size_t end_frame(uint8_t *frame, const uint8_t *at) {
    put32(frame, (uint32_t)(at - frame - 4));
    return (size_t)(at - frame);
}

static size_t size_of(const uint8_t *at, size_t size) {
    if (size < 4) return 0;
    size_t frame = 4 + (size_t)load32(at);
    return frame <= size ? frame : 0;
}

static int key_of(const uint8_t *frame) { return load16(frame + 4); }

static void check_code(const uint8_t *frame, const char *what) {
    if (load16(frame + 12) != OK) die("RabbitMQ refuses to %s with code %d", what, load16(frame + 12));
}

static bool is_response(struct peer *peer, const uint8_t *at, size_t size) {
    (void)peer;
    if (key_of(at) == CLOSE) die("RabbitMQ closes the connection: %.*s", (int)(size - 16), (const char *)at + 16);
    if (!(key_of(at) & RESPONSE) || size < 14) return false;
    check_code(at, "open a connection or a publisher");
    return true;
}

static bool is_tune(struct peer *peer, const uint8_t *at, size_t size) {
    if (key_of(at) != TUNE) return false;
    /* Agreed: the same frame goes back, without heartbeats. */
    uint8_t frame[64];
    if (size > sizeof frame) die("a Tune frame of %zu bytes", size);
    memcpy(frame, at, size);
    put32(frame + size - 4, 0);
    say(peer, frame, size);
    return true;
}

static void request(struct peer *peer, uint8_t *frame, const uint8_t *end) {
    say(peer, frame, end_frame(frame, end));
    hear_until(peer, is_response, size_of);
}

static void open_reader(struct peer *peer) {
    uint8_t frame[256], *at = put32(begin_frame(frame, PEER_PROPERTIES), 1);
    request(peer, frame, put32(at, 0));
    at = put32(begin_frame(frame, SASL_HANDSHAKE), 2);
    request(peer, frame, at);
    at = put_text(put32(begin_frame(frame, SASL_AUTHENTICATE), 3), "PLAIN");
    request(peer, frame, put_bytes(put32(at, 12), "\0guest\0guest", 12));
    hear_until(peer, is_tune, size_of);
    at = put32(begin_frame(frame, OPEN), 4);
    request(peer, frame, put_text(at, "/"));
}

static void open_writer(struct peer *peer) {
    open_reader(peer);
    uint8_t frame[64 + LENGTH_OF_NAME], *at = put32(begin_frame(frame, DECLARE_PUBLISHER), 5);
    /* Without a name, so that it looks for no duplicates. */
    at = put_text(put8(at, 0), "");
    request(peer, frame, put_text(at, peer->options->topics[0]));
}

static uint8_t *put_messages(struct peer *peer, uint8_t *frame, const uint8_t *values, int count) {
    size_t size = peer->options->message_bytes;
    uint8_t *at = put32(put8(begin_frame(frame, PUBLISH), 0), (uint32_t)count);
    for (int i = 0; i < count; i++) {
        at = put32(put64(at, peer->sent + (uint64_t)i), (uint32_t)size);
        at = put_bytes(at, values + (size_t)i * size, size);
    }
    end_frame(frame, at);
    return at;
}

/* Credit is in chunks, whose size the broker chose when it wrote them. */
static void ask(struct peer *peer) {
    if (peer->place[0] && peer->promised > CHUNKS_AHEAD / 2) return;
    uint8_t *frame = room_in(&peer->out, 64 + LENGTH_OF_NAME), *at;
    uint16_t credit = (uint16_t)(CHUNKS_AHEAD - peer->promised);
    if (peer->place[0]) {
        at = put16(put8(begin_frame(frame, CREDIT), 0), credit);
    } else {
        strcpy(peer->place, "subscribed");
        at = put8(put32(begin_frame(frame, SUBSCRIBE), 6), 0);
        at = put16(put_text(at, peer->options->topics[0]), FROM_FIRST);
        at = put32(put16(at, credit), 0);
    }
    peer->out.end += end_frame(frame, at);
    peer->promised = CHUNKS_AHEAD;
}

static void take_chunk(struct peer *peer, struct reader *body) {
    get8(body);
    const uint8_t *header = take(body, CHUNK_HEADER);
    peer->promised--;
    if (body->bad) die("RabbitMQ: a chunk that cannot be read");
    /* Others are RabbitMQ's own. */
    if (header[1] != 0) return;
    for (int entries = load16(header + 2); entries; entries--) {
        uint32_t size = get32(body);
        if (size >> 31) die("RabbitMQ: an entry of several messages");
        const uint8_t *value = take(body, size);
        if (body->bad) die("RabbitMQ: a chunk that cannot be read");
        delivered(peer, value, size);
    }
}

static size_t take_frame(struct peer *peer, const uint8_t *at, size_t size) {
    size = size_of(at, size);
    if (!size) return 0;
    struct reader body = {at + 8, at + size, false};
    int key = key_of(at);
    if (key == PUBLISH_CONFIRM) {
        get8(&body);
        acknowledged(peer, get32(&body));
    } else if (key == DELIVER) {
        take_chunk(peer, &body);
    } else if (key == (SUBSCRIBE | RESPONSE)) {
        check_code(at, "subscribe");
    } else if (key == PUBLISH_ERROR || key == CLOSE || key == (CREDIT | RESPONSE)) {
        die("RabbitMQ refuses a request: a frame of kind %d", key);
    }
    return size;
}

const struct protocol RABBITMQ = {
    .name = "rabbitmq",
    .open_writer = open_writer,
    .open_reader = open_reader,
    .message_overhead = 12,
    .request_overhead = 16,
    .put_messages = put_messages,
    .ask = ask,
    .take = take_frame,
};
