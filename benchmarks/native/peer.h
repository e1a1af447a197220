/* Load for systems with a protocol of their own: what each of these protocols has to tell, and what the modes share. */

#ifndef PEER_H
#define PEER_H

#include "load.h"

/* Bytes that are on their way: those between begin and end. */
struct pipe {
    uint8_t *bytes;
    size_t begin, end, capacity;
};

/* A connection to such a system. */
struct peer {
    int fd, number;
    const struct options *options;
    struct pipe in, out;
    bool wants_to_send;
    /* Messages that were sent and acknowledged, and messages that were read. */
    uint64_t sent, acked, read;
    /* What the protocol remembers: a reply that is half read, the last place, how much more it was promised. */
    uint64_t remaining, promised;
    char place[64];
};

struct protocol {
    const char *name;
    /* Says hello, and gets ready to write. Waits for the answers. */
    void (*open_writer)(struct peer *peer);
    /* Says hello, and gets ready to read from the first message on. */
    void (*open_reader)(struct peer *peer);
    /* Bytes that messages take besides their values, at most. */
    size_t message_overhead, request_overhead;
    /* Writes messages, whose values lie one behind the other. */
    uint8_t *(*put_messages)(struct peer *peer, uint8_t *at, const uint8_t *values, int count);
    /* Asks for messages, if it is time to. */
    void (*ask)(struct peer *peer);
    /* Takes what lies at the beginning of the bytes that came; the result is its size, 0 if there is not enough. */
    size_t (*take)(struct peer *peer, const uint8_t *at, size_t size);
};

extern const struct protocol REDIS, NATS, RABBITMQ;

/* What a protocol tells of. */
void acknowledged(struct peer *peer, uint64_t messages);
void delivered(struct peer *peer, const uint8_t *value, size_t size);

/* Before the loop begins, waiting. */
void say(struct peer *peer, const void *bytes, size_t size);
/* Takes replies until one says that it was the awaited one. */
void hear_until(struct peer *peer, bool (*is_awaited)(struct peer *peer, const uint8_t *at, size_t size),
                size_t (*size_of)(const uint8_t *at, size_t size));

/* Room behind the end of a pipe. */
uint8_t *room_in(struct pipe *pipe, size_t size);

/* Peers that are driven together. */
struct crowd {
    const struct protocol *protocol;
    struct peer *peers;
    int count, epoll;
    bool spin;
    void (*acknowledged)(struct peer *peer, uint64_t messages);
    void (*delivered)(struct peer *peer, const uint8_t *value);
    /* Called when something came; may be NULL. */
    void (*refill)(struct peer *peer);
};

extern struct crowd crowd;

const struct protocol *protocol_named(const char *name);
void open_crowd(const struct options *options, int writers, int readers);
void send_out(struct peer *peer);
void turn_crowd(uint64_t until_ns);

void run_peer_produce(const struct options *options);
void run_peer_fetch(const struct options *options);
void run_peer_end_to_end(const struct options *options);

#endif
