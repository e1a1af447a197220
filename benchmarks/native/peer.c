/* Connections of the load for other protocols: what goes out is buffered, what comes in is handed to the protocol. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "peer.h"

enum { RECEIVE_BYTES = 1 << 18 };

struct crowd crowd;

const struct protocol *protocol_named(const char *name) {
    const struct protocol *all[] = {&REDIS, &NATS, &RABBITMQ};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name)) return all[i];
    die("no protocol %s: there are kafka, redis, nats and rabbitmq", name);
}

uint8_t *room_in(struct pipe *pipe, size_t size) {
    if (pipe->begin == pipe->end) pipe->begin = pipe->end = 0;
    if (pipe->capacity - pipe->end < size && pipe->begin) {
        memmove(pipe->bytes, pipe->bytes + pipe->begin, pipe->end - pipe->begin);
        pipe->end -= pipe->begin;
        pipe->begin = 0;
    }
    if (pipe->capacity - pipe->end < size) {
        pipe->capacity = 2 * (pipe->end + size);
        pipe->bytes = realloc(pipe->bytes, pipe->capacity);
        if (!pipe->bytes) die("out of memory: %zu bytes", pipe->capacity);
    }
    return pipe->bytes + pipe->end;
}

void acknowledged(struct peer *peer, uint64_t messages) {
    peer->acked += messages;
    if (peer->acked > peer->sent) die("an acknowledgement of what was not sent");
    if (crowd.acknowledged) crowd.acknowledged(peer, messages);
}

void delivered(struct peer *peer, const uint8_t *value, size_t size) {
    if (size != peer->options->message_bytes) die("a message of another size: %zu bytes", size);
    peer->read++;
    if (crowd.delivered) crowd.delivered(peer, value);
}

void say(struct peer *peer, const void *bytes, size_t size) {
    for (size_t sent = 0; sent < size;) {
        ssize_t more = send(peer->fd, (const uint8_t *)bytes + sent, size - sent, MSG_NOSIGNAL);
        if (more < 0) die("sending: %s", strerror(errno));
        sent += (size_t)more;
    }
}

/* False if nothing came, which only one that does not wait may see. */
static bool receive(struct peer *peer, int flags) {
    uint8_t *into = room_in(&peer->in, RECEIVE_BYTES);
    ssize_t got = recv(peer->fd, into, peer->in.capacity - peer->in.end, flags);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got < 0) die("receiving: %s", strerror(errno));
    if (got == 0) die("the server closed the connection");
    peer->in.end += (size_t)got;
    return true;
}

void hear_until(struct peer *peer, bool (*is_awaited)(struct peer *peer, const uint8_t *at, size_t size),
                size_t (*size_of)(const uint8_t *at, size_t size)) {
    for (;;) {
        const uint8_t *at = peer->in.bytes + peer->in.begin;
        size_t held = peer->in.end - peer->in.begin, size = held ? size_of(at, held) : 0;
        if (!size) {
            receive(peer, 0);
            continue;
        }
        peer->in.begin += size;
        if (is_awaited(peer, at, size)) return;
    }
}

static void watch(struct peer *peer, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (peer->wants_to_send ? EPOLLOUT : 0)};
    event.data.u32 = (uint32_t)peer->number;
    if (epoll_ctl(crowd.epoll, operation, peer->fd, &event)) die("epoll_ctl: %s", strerror(errno));
}

static void open_peer(struct peer *peer) {
    const struct options *options = peer->options;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) die("%s is no IPv4 address", options->host);
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer->fd < 0) die("socket: %s", strerror(errno));
    struct timeval patience = {.tv_sec = 30};
    setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(peer->fd, (struct sockaddr *)&address, sizeof address))
        die("connecting to %s:%d: %s", options->host, options->port, strerror(errno));
    int on = 1;
    setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void open_crowd(const struct options *options, int writers, int readers) {
    crowd.protocol = protocol_named(options->protocol);
    crowd.spin = options->spin;
    crowd.count = writers + readers;
    crowd.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (crowd.epoll < 0) die("epoll_create1: %s", strerror(errno));
    crowd.peers = allocate((size_t)crowd.count * sizeof *crowd.peers);
    for (int i = 0; i < crowd.count; i++) {
        struct peer *peer = &crowd.peers[i];
        peer->number = i;
        peer->options = options;
        open_peer(peer);
        if (i < writers)
            crowd.protocol->open_writer(peer);
        else
            crowd.protocol->open_reader(peer);
        watch(peer, EPOLL_CTL_ADD);
    }
}

void send_out(struct peer *peer) {
    struct pipe *out = &peer->out;
    while (out->begin < out->end) {
        ssize_t sent = send(peer->fd, out->bytes + out->begin, out->end - out->begin, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) die("sending: %s", strerror(errno));
        if (sent < 0) break;
        out->begin += (size_t)sent;
    }
    bool wants_to_send = out->begin < out->end;
    if (wants_to_send != peer->wants_to_send) {
        peer->wants_to_send = wants_to_send;
        watch(peer, EPOLL_CTL_MOD);
    }
}

static void take_in(struct peer *peer) {
    if (!receive(peer, MSG_DONTWAIT)) return;
    while (peer->in.begin < peer->in.end) {
        size_t size = crowd.protocol->take(peer, peer->in.bytes + peer->in.begin, peer->in.end - peer->in.begin);
        if (!size) break;
        peer->in.begin += size;
    }
}

void turn_crowd(uint64_t until_ns) {
    struct epoll_event events[64];
    uint64_t now = now_ns();
    if (!crowd.spin && now < until_ns) {
        struct timespec wait = {(time_t)((until_ns - now) / 1000000000u), (long)((until_ns - now) % 1000000000u)};
        struct pollfd any = {.fd = crowd.epoll, .events = POLLIN};
        if (ppoll(&any, 1, &wait, NULL) < 0 && errno != EINTR) die("ppoll: %s", strerror(errno));
    }
    int count = epoll_wait(crowd.epoll, events, 64, 0);
    if (count < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct peer *peer = &crowd.peers[events[i].data.u32];
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take_in(peer);
        if (crowd.refill) crowd.refill(peer);
        send_out(peer);
    }
}
