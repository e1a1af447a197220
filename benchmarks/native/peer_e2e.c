/* e2e for other protocols: messages at a steady rate, whatever the server does, and a consumer that waits for them. */

#include <sys/prctl.h>

#include "batch.h"
#include "peer.h"

enum { STAMP = 16 };

static const struct options *options;
static uint64_t total, begun_ns, sent, acked, received, duplicates, requests;
static int batch_limit;
static uint64_t *next_of, *next_acked;
static uint8_t *seen, *values;
static struct histogram ack_latency, latency;

static uint64_t due_ns(uint64_t message) { return (uint64_t)((double)message * 1e9 / options->rate); }

static bool counts(uint64_t due) { return (double)due >= options->warmup_seconds * 1e9; }

/* Messages of connection c are c, c + connections, c + 2 * connections, … */

static void send_group(struct peer *peer, int messages) {
    const struct protocol *protocol = crowd.protocol;
    for (int i = 0; i < messages; i++, next_of[peer->number] += (uint64_t)options->connections) {
        uint64_t message = next_of[peer->number];
        put64(put64(values + (size_t)i * options->message_bytes, due_ns(message)), message);
    }
    size_t size = protocol->request_overhead + (size_t)messages * (protocol->message_overhead + options->message_bytes);
    uint8_t *at = room_in(&peer->out, size);
    peer->out.end += (size_t)(protocol->put_messages(peer, at, values, messages) - at);
    peer->sent += (uint64_t)messages;
    sent += (uint64_t)messages;
    requests++;
}

/* Sends what has to go out by now; the result is when there will be something. */
static uint64_t send_due(struct peer *peer, uint64_t now) {
    uint64_t linger = (uint64_t)(options->linger_ms * 1e6), step = (uint64_t)options->connections;
    for (;;) {
        uint64_t next = next_of[peer->number];
        bool is_full_up = peer->sent - peer->acked >= (uint64_t)(options->in_flight * batch_limit);
        if (next >= total || is_full_up) return UINT64_MAX;
        uint64_t when = due_ns(next) + linger, last = next + (uint64_t)(batch_limit - 1) * step;
        bool is_full = last < total && due_ns(last) <= now;
        if (!is_full && when > now) return when;
        int messages = 1;
        while (messages < batch_limit && next + (uint64_t)messages * step < total &&
               due_ns(next + (uint64_t)messages * step) <= now)
            messages++;
        send_group(peer, messages);
    }
}

static void count_acks(struct peer *peer, uint64_t messages) {
    uint64_t now = now_ns() - begun_ns;
    for (; messages; messages--, acked++, next_acked[peer->number] += (uint64_t)options->connections) {
        uint64_t due = due_ns(next_acked[peer->number]);
        if (counts(due)) record(&ack_latency, now - due);
    }
}

static void count_message(struct peer *peer, const uint8_t *value) {
    (void)peer;
    uint64_t now = now_ns() - begun_ns, due = load64(value), message = load64(value + 8);
    if (message >= total || due != due_ns(message)) die("a message that nobody sent");
    if (seen[message / 8] & (1u << (message % 8))) {
        duplicates++;
        return;
    }
    seen[message / 8] |= (uint8_t)(1u << (message % 8));
    received++;
    if (counts(due)) record(&latency, now - due);
}

static void refill(struct peer *peer) {
    if (peer->number >= options->connections) crowd.protocol->ask(peer);
}

void run_peer_end_to_end(const struct options *given) {
    options = given;
    if (options->schedule || options->consumers != 1) die("%s: a steady rate and one consumer", options->protocol);
    if (options->message_bytes < STAMP) die("a message needs %d bytes for its number and time", STAMP);
    batch_limit = options->linger_ms > 0 ? messages_within(options->batch_bytes, options->message_bytes) : 1;
    total = (uint64_t)(options->rate * options->seconds);
    values = allocate((size_t)batch_limit * options->message_bytes);
    fill_random(values, (size_t)batch_limit * options->message_bytes);
    seen = allocate(total / 8 + 1);
    next_of = allocate((size_t)options->connections * sizeof *next_of);
    next_acked = allocate((size_t)options->connections * sizeof *next_acked);
    for (int i = 0; i < options->connections; i++) next_of[i] = next_acked[i] = (uint64_t)i;
    prctl(PR_SET_TIMERSLACK, 1);
    crowd.acknowledged = count_acks;
    crowd.delivered = count_message;
    crowd.refill = refill;
    open_crowd(options, options->connections, 1);
    struct peer *reader = &crowd.peers[options->connections];
    refill(reader);
    send_out(reader);
    begun_ns = now_ns();
    uint64_t give_up = (uint64_t)((options->seconds + options->drain_seconds) * 1e9);
    for (;;) {
        uint64_t now = now_ns() - begun_ns, until = now + 100000000u;
        if (now > give_up || (received >= total && acked >= total)) break;
        for (int i = 0; i < options->connections; i++) {
            uint64_t when = send_due(&crowd.peers[i], now);
            if (when < until) until = when;
            send_out(&crowd.peers[i]);
        }
        turn_crowd(begun_ns + until);
    }
    double seconds = (double)(now_ns() - begun_ns) / 1e9;
    printf("{\"mode\": \"e2e\", \"requests\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"acked\": %" PRIu64
           ", \"received\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"errors\": 0, \"first_error\": 0, \"ack\": ",
           requests, sent, acked, received, total - received, duplicates, received * options->message_bytes, seconds);
    print_histogram(&ack_latency, options->buckets);
    printf(", \"latency\": ");
    print_histogram(&latency, options->buckets);
    printf("}\n");
}
