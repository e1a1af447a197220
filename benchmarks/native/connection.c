/* Connections with requests in flight: sent gathered, answered in order. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { GATHERED = 96, FIRST_BUFFER = 4096, LARGE_FRAME = 65536, MAX_FRAME = 1 << 30 };

static void watch(struct connection *connection, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (connection->wants_to_send ? EPOLLOUT : 0)};
    event.data.u32 = (uint32_t)connection->number;
    if (epoll_ctl(connection->loop->epoll, operation, connection->fd, &event)) die("epoll_ctl: %s", strerror(errno));
}

static void open_connection(struct connection *connection, const struct options *options) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) die("%s is no IPv4 address", options->host);
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) die("socket: %s", strerror(errno));
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address))
        die("connecting to %s:%d: %s", options->host, options->port, strerror(errno));
    int on = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(connection, EPOLL_CTL_ADD);
}

void open_loop(struct loop *loop, const struct options *options, int count, uint64_t in_flight) {
    loop->count = count;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0) die("epoll_create1: %s", strerror(errno));
    loop->connections = allocate((size_t)count * sizeof *loop->connections);
    for (int i = 0; i < count; i++) {
        struct connection *connection = &loop->connections[i];
        connection->loop = loop;
        connection->number = i;
        connection->in_flight = in_flight;
        connection->ring = allocate(in_flight * sizeof *connection->ring);
        open_connection(connection, options);
    }
}

void close_loop(struct loop *loop) {
    for (int i = 0; i < loop->count; i++) close(loop->connections[i].fd);
    close(loop->epoll);
}

struct request *new_request(struct connection *connection, size_t head_capacity) {
    if (!has_room(connection)) die("a bug: more requests than may be in flight");
    struct request *request = request_at(connection, connection->queued);
    if (request->head_capacity < head_capacity) {
        free(request->head);
        request->head = allocate(head_capacity);
        request->head_capacity = head_capacity;
    }
    request->correlation = (uint32_t)connection->queued++;
    request->body = NULL;
    request->body_size = request->tail = 0;
    return request;
}

static size_t total_size(const struct request *request) {
    return request->head_size + request->body_size + request->tail;
}

/* Adds what is left of a request once `skip` bytes of it are gone. */
static int gather(struct iovec *parts, const struct request *request, size_t skip) {
    static uint8_t zeros[16];
    struct iovec all[3] = {{request->head, request->head_size},
                           {(void *)request->body, request->body_size},
                           {zeros, request->tail}};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        if (skip >= all[i].iov_len) {
            skip -= all[i].iov_len;
            continue;
        }
        parts[count++] = (struct iovec){(uint8_t *)all[i].iov_base + skip, all[i].iov_len - skip};
        skip = 0;
    }
    return count;
}

void send_requests(struct connection *connection) {
    while (connection->sent < connection->queued) {
        struct iovec parts[GATHERED];
        int count = 0;
        uint64_t number = connection->sent;
        for (; number < connection->queued && count + 3 <= GATHERED; number++)
            count += gather(parts + count, request_at(connection, number),
                            number == connection->sent ? connection->sent_bytes : 0);
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) die("sending: %s", strerror(errno));
        if (sent < 0) break;
        size_t bytes = (size_t)sent + connection->sent_bytes;
        while (connection->sent < number && bytes >= total_size(request_at(connection, connection->sent)))
            bytes -= total_size(request_at(connection, connection->sent++));
        connection->sent_bytes = bytes;
    }
    bool wants_to_send = connection->sent < connection->queued;
    if (wants_to_send != connection->wants_to_send) {
        connection->wants_to_send = wants_to_send;
        watch(connection, EPOLL_CTL_MOD);
    }
}

static void make_room(struct connection *connection, size_t capacity) {
    if (connection->in_capacity >= capacity) return;
    connection->in = realloc(connection->in, capacity);
    if (!connection->in) die("out of memory: %zu bytes", capacity);
    connection->in_capacity = capacity;
}

static void receive_responses(struct connection *connection) {
    make_room(connection, FIRST_BUFFER);
    size_t room = connection->in_capacity - connection->in_size;
    if (connection->in_size >= 4) {
        size_t frame = 4 + (size_t)load32(connection->in);
        if (frame > MAX_FRAME) die("a response of %zu bytes", frame);
        make_room(connection, frame + FIRST_BUFFER);
        room = connection->in_capacity - connection->in_size;
        /* What comes behind a large response would have to be moved to the front. */
        if (frame > LARGE_FRAME && frame > connection->in_size) room = frame - connection->in_size;
    }
    ssize_t got = recv(connection->fd, connection->in + connection->in_size, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) die("receiving: %s", strerror(errno));
    if (got == 0) die("the broker closed the connection");
    connection->in_size += (size_t)got;
    size_t start = 0;
    while (connection->in_size - start >= 4) {
        size_t size = load32(connection->in + start);
        if (connection->in_size - start - 4 < size) break;
        struct reader body = {connection->in + start + 4, connection->in + start + 4 + size, false};
        start += 4 + size;
        if (connection->done == connection->sent) die("a response that nobody asked for");
        struct request *request = request_at(connection, connection->done++);
        if (get32(&body) != request->correlation) die("a response to another request");
        skip_tags(&body, request->form);
        connection->loop->answered(connection, request, &body);
    }
    connection->in_size -= start;
    if (start && connection->in_size) memmove(connection->in, connection->in + start, connection->in_size);
}

void turn(struct loop *loop, uint64_t until_ns) {
    struct epoll_event events[64];
    uint64_t now = now_ns();
    if (!loop->spin && now < until_ns) {
        /* The time of epoll_wait is in milliseconds, which is too coarse. */
        struct timespec wait = {(time_t)((until_ns - now) / 1000000000u), (long)((until_ns - now) % 1000000000u)};
        struct pollfd any = {.fd = loop->epoll, .events = POLLIN};
        if (ppoll(&any, 1, &wait, NULL) < 0 && errno != EINTR) die("ppoll: %s", strerror(errno));
    }
    int count = epoll_wait(loop->epoll, events, 64, 0);
    if (count < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct connection *connection = &loop->connections[events[i].data.u32];
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_responses(connection);
        if (loop->refill) loop->refill(connection);
        send_requests(connection);
    }
}

static bool is_idle(const struct loop *loop) {
    for (int i = 0; i < loop->count; i++)
        if (loop->connections[i].done < loop->connections[i].queued) return false;
    return true;
}

void drain(struct loop *loop, double seconds) {
    uint64_t deadline = now_ns() + (uint64_t)(seconds * 1e9);
    while (!is_idle(loop)) {
        if (now_ns() > deadline) die("no response within %.0f s", seconds);
        turn(loop, deadline);
    }
}
