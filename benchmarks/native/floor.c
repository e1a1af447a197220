/* The floor: what a broker written in C costs that does the same for a request as Penstock does, and nothing else.
 *
 * One thread and one large buffer to receive into; batches are checked, stamped in place, gathered, written at their
 * position; the replies to what came together go out together; large fetches by sendfile. A second thread flushes.
 *
 *     floor --folder DIR [--port PORT] [--no-flush] [--rest-ms 2]
 *
 * It says on standard output which port it listens on. */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "floor.h"

enum { RECEIVE_BYTES = 1 << 20, OUTPUT_BYTES = 4096, MAX_CONNECTIONS = 8192 };
/* Instead of a connection's number. */
enum { LISTENER = MAX_CONNECTIONS, ROUND };

/* Bytes or a stretch of a file. It goes out when so many rounds are over, and all before it are out. */
struct output {
    struct output *next;
    uint64_t round;
    struct range range;
    bool is_range;
    size_t begin, end, capacity;
    uint8_t *bytes;
};

static int epoll, listener;
static struct connection *connections[MAX_CONNECTIONS];
static uint32_t connection_count;
static uint8_t receive_buffer[RECEIVE_BYTES];
/* Outputs of the usual size, to be used again. */
static struct output *spare;
/* The last round that a reply waits for; fetches that wait, and when the first of them gets an empty answer. */
static uint64_t awaited_round, next_deadline_ns = UINT64_MAX;
static int waiting_count;

static void watch(struct connection *connection, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (connection->wants_to_send ? EPOLLOUT : 0)};
    event.data.u32 = connection->number;
    if (epoll_ctl(epoll, operation, connection->fd, &event)) die("epoll_ctl: %s", strerror(errno));
}

static struct output *new_output(struct connection *connection, size_t capacity) {
    struct output *output = spare;
    if (capacity <= OUTPUT_BYTES && output) {
        spare = output->next;
    } else {
        output = allocate(sizeof *output);
        output->capacity = capacity < OUTPUT_BYTES ? OUTPUT_BYTES : capacity;
        output->bytes = allocate(output->capacity);
    }
    output->next = NULL;
    output->round = output->begin = output->end = 0;
    output->is_range = false;
    if (connection->last)
        connection->last->next = output;
    else
        connection->first = output;
    connection->last = output;
    return output;
}

static void drop_first(struct connection *connection) {
    struct output *output = connection->first;
    connection->first = output->next;
    if (!connection->first) connection->last = NULL;
    if (output->capacity == OUTPUT_BYTES) {
        output->next = spare;
        spare = output;
    } else {
        free(output->bytes);
        free(output);
    }
}

uint8_t *reserve(struct connection *connection, size_t size, uint64_t round) {
    struct output *last = connection->last;
    bool fits = last && !last->is_range && last->end + size <= last->capacity;
    /* What waits for nothing may wait with what came before it, but not the other way round. */
    if (!fits || (last->round < round && last->end > last->begin)) last = new_output(connection, size);
    if (last->round < round) last->round = round;
    if (awaited_round < round) awaited_round = round;
    return last->bytes + last->end;
}

void commit(struct connection *connection, size_t size) { connection->last->end += size; }

void send_range(struct connection *connection, struct range range) {
    struct output *output = new_output(connection, 0);
    output->is_range = true;
    output->range = range;
}

static void close_connection(struct connection *connection) {
    connections[connection->number] = NULL;
    while (connection->first) drop_first(connection);
    waiting_count -= connection->waiting_size > 0;
    close(connection->fd);
    free(connection->tail);
    free(connection->waiting);
    free(connection);
}

/* False if the connection is no more. */
static bool send_output(struct connection *connection) {
    bool is_blocked = false;
    while (connection->first && connection->first->round <= rounds_over() && !is_blocked) {
        struct output *output = connection->first;
        ssize_t sent;
        bool has_next = output->next && output->next->round <= rounds_over();
        size_t size = output->is_range ? output->range.size : output->end - output->begin;
        if (output->is_range)
            sent = sendfile(connection->fd, output->range.fd, &output->range.begin, size);
        else
            sent = send(connection->fd, output->bytes + output->begin, size,
                        MSG_DONTWAIT | MSG_NOSIGNAL | (has_next ? MSG_MORE : 0));
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            close_connection(connection);
            return false;
        }
        is_blocked = sent < (ssize_t)size;
        if (!is_blocked) {
            drop_first(connection);
        } else if (sent > 0) {
            output->begin += (size_t)sent;
            if (output->is_range) output->range.size -= (size_t)sent;
        }
    }
    if (is_blocked != connection->wants_to_send) {
        connection->wants_to_send = is_blocked;
        watch(connection, EPOLL_CTL_MOD);
    }
    return true;
}

static void keep(uint8_t **into, size_t *size, size_t *capacity, const uint8_t *bytes, size_t more) {
    if (*size + more > *capacity) {
        *capacity = (*size + more) * 5 / 4;
        *into = realloc(*into, *capacity);
        if (!*into) die("out of memory");
    }
    memcpy(*into + *size, bytes, more);
    *size += more;
}

static void answer_waiting(struct connection *connection, bool is_late) {
    if (!connection->waiting_size) return;
    if (!handle(connection, connection->waiting, connection->waiting_size, is_late)) return;
    connection->waiting_size = 0;
    waiting_count--;
}

static void take_request(struct connection *connection, uint8_t *request, size_t size) {
    /* Replies go out in the order of the requests. */
    answer_waiting(connection, true);
    if (handle(connection, request, size, false)) return;
    keep(&connection->waiting, &connection->waiting_size, &connection->waiting_capacity, request, size);
    waiting_count++;
    if (connection->waits_until_ns < next_deadline_ns) next_deadline_ns = connection->waits_until_ns;
}

/* The requests that lie whole in these bytes; the result is how much they are. */
static size_t take_requests(struct connection *connection, uint8_t *bytes, size_t size) {
    size_t at = 0;
    while (size - at >= 4 && size - at - 4 >= load32(bytes + at)) {
        size_t length = load32(bytes + at);
        take_request(connection, bytes + at + 4, length);
        at += 4 + length;
    }
    return at;
}

static void receive(struct connection *connection) {
    ssize_t got = recv(connection->fd, receive_buffer, RECEIVE_BYTES, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        close_connection(connection);
        return;
    }
    uint8_t *bytes = receive_buffer;
    size_t size = (size_t)got;
    while (connection->tail_size && size) {
        size_t frame = connection->tail_size < 4 ? 4 : 4 + (size_t)load32(connection->tail);
        size_t missing = frame - connection->tail_size;
        if (missing > size) missing = size;
        keep(&connection->tail, &connection->tail_size, &connection->tail_capacity, bytes, missing);
        bytes += missing;
        size -= missing;
        if (connection->tail_size < 4 || connection->tail_size < 4 + (size_t)load32(connection->tail)) continue;
        take_requests(connection, connection->tail, connection->tail_size);
        /* Before the buffer is used again. */
        write_gathered();
        connection->tail_size = 0;
    }
    size_t taken = take_requests(connection, bytes, size);
    write_gathered();
    if (taken < size)
        keep(&connection->tail, &connection->tail_size, &connection->tail_capacity, bytes + taken, size - taken);
    send_output(connection);
}

static void accept_connection(void) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd < 0) return;
    uint32_t number = 0;
    while (number < connection_count && connections[number]) number++;
    if (number == MAX_CONNECTIONS) die("too many connections");
    if (number == connection_count) connection_count++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *connection = connections[number] = allocate(sizeof *connection);
    connection->fd = fd;
    connection->number = number;
    watch(connection, EPOLL_CTL_ADD);
}

/* Replies that waited for a flush, fetches that waited for data or for too long. */
static void tend(uint64_t now, bool is_flushed) {
    next_deadline_ns = UINT64_MAX;
    for (uint32_t number = 0; number < connection_count; number++) {
        struct connection *connection = connections[number];
        if (!connection) continue;
        if (connection->waiting_size) {
            uint64_t deadline = connection->waits_until_ns;
            if (is_flushed || now >= deadline) answer_waiting(connection, now >= deadline);
            if (connection->waiting_size && deadline < next_deadline_ns) next_deadline_ns = deadline;
        }
        if (connection->first && !connection->wants_to_send) send_output(connection);
    }
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int on = 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024))
        die("port %d: %s", port, strerror(errno));
    if (getsockname(listener, (struct sockaddr *)&address, &size)) die("getsockname: %s", strerror(errno));
    return ntohs(address.sin_port);
}

/* True if a round of flushing is over. */
static bool take_events(int timeout_ms) {
    struct epoll_event events[64];
    bool is_flushed = false;
    int count = epoll_wait(epoll, events, 64, timeout_ms);
    if (count < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        uint32_t number = events[i].data.u32;
        if (number == LISTENER) {
            accept_connection();
        } else if (number == ROUND) {
            end_round();
            is_flushed = true;
        } else if (connections[number]) {
            bool is_open = true;
            if (events[i].events & EPOLLOUT) is_open = send_output(connections[number]);
            if (is_open && events[i].events & ~(uint32_t)EPOLLOUT) receive(connections[number]);
        }
    }
    return is_flushed;
}

static void serve(void) {
    uint64_t rest_ends = 0;
    for (;;) {
        uint64_t wake = rest_ends && rest_ends < next_deadline_ns ? rest_ends : next_deadline_ns, now = now_ns();
        int timeout = wake == UINT64_MAX ? -1 : wake <= now ? 0 : (int)((wake - now + 999999) / 1000000);
        bool is_flushed = take_events(timeout);
        now = now_ns();
        if (is_flushed || now >= next_deadline_ns) tend(now, is_flushed);
        /* A consumer waits for it as well: it sees nothing that is not flushed. */
        rest_ends = begin_round(awaited_round > rounds_over() || waiting_count);
    }
}

int main(int count, char **arguments) {
    static const struct option OPTIONS[] = {
        {"folder", 1, 0, 'f'}, {"port", 1, 0, 'p'}, {"no-flush", 0, 0, 'n'}, {"rest-ms", 1, 0, 'r'}, {0, 0, 0, 0}};
    const char *folder = NULL;
    int port = 0, rest_ms = 2, option;
    bool flushes = true;
    while ((option = getopt_long(count, arguments, "", OPTIONS, NULL)) != -1) switch (option) {
            case 'f': folder = optarg; break;
            case 'p': port = atoi(optarg); break;
            case 'n': flushes = false; break;
            case 'r': rest_ms = atoi(optarg); break;
            default: return 2;
        }
    if (!folder) die("usage: floor --folder DIR [--port PORT] [--no-flush] [--rest-ms 2]");
    open_logs(folder, flushes, rest_ms);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    port = listen_on(port);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.u32 = ROUND;
    epoll_ctl(epoll, EPOLL_CTL_ADD, round_ended_fd(), &event);
    printf("port %d\n", port);
    fflush(stdout);
    serve();
}
