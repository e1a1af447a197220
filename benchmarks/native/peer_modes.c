/* produce and fetch for other protocols. A request of produce is as many messages as a batch holds, sent together; each
 * reader of fetch reads everything from the beginning, with one request in flight. */

#include "batch.h"
#include "peer.h"

static const struct options *options;
static int messages;
static uint8_t *values;
static uint64_t requests, done, end_ns, finished_ns, read_messages;
/* When each request in flight began, by connection. */
static uint64_t *begun;
static struct histogram latency;

static bool has_more(uint64_t now) {
    return (!options->requests || requests < options->requests) && (!end_ns || now < end_ns);
}

static uint64_t *begun_of(const struct peer *peer, uint64_t request) {
    return &begun[(uint64_t)peer->number * (uint64_t)options->in_flight + request % (uint64_t)options->in_flight];
}

static void refill(struct peer *peer) {
    const struct protocol *protocol = crowd.protocol;
    uint64_t now = now_ns(), count = (uint64_t)messages;
    size_t size = protocol->request_overhead + count * (protocol->message_overhead + options->message_bytes);
    while (peer->sent / count - peer->acked / count < (uint64_t)options->in_flight && has_more(now)) {
        uint8_t *at = room_in(&peer->out, size);
        *begun_of(peer, peer->sent / count) = now;
        peer->out.end += (size_t)(protocol->put_messages(peer, at, values, messages) - at);
        peer->sent += count;
        requests++;
    }
}

static void finish_requests(struct peer *peer, uint64_t acked) {
    uint64_t now = now_ns(), count = (uint64_t)messages;
    for (uint64_t request = (peer->acked - acked) / count; request < peer->acked / count; request++, done++)
        record(&latency, now - *begun_of(peer, request));
}

static void print_result(const char *mode, uint64_t count, uint64_t size, double seconds) {
    printf("{\"mode\": \"%s\", \"requests\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"errors\": 0, \"first_error\": 0, \"latency\": ",
           mode, count, size / options->message_bytes, size, seconds);
    print_histogram(&latency, options->buckets);
    printf("}\n");
}

void run_peer_produce(const struct options *given) {
    options = given;
    messages = messages_within(options->batch_bytes, options->message_bytes);
    size_t size = (size_t)messages * options->message_bytes;
    values = allocate(size);
    fill_random(values, size);
    begun = allocate((size_t)options->connections * (size_t)options->in_flight * sizeof *begun);
    crowd.acknowledged = finish_requests;
    crowd.refill = refill;
    open_crowd(options, options->connections, 0);
    uint64_t start = now_ns();
    if (options->seconds > 0) end_ns = start + (uint64_t)(options->seconds * 1e9);
    for (int i = 0; i < crowd.count; i++) {
        refill(&crowd.peers[i]);
        send_out(&crowd.peers[i]);
    }
    while (has_more(now_ns())) turn_crowd(now_ns() + 10000000);
    uint64_t deadline = now_ns() + 60000000000u;
    while (done < requests) {
        if (now_ns() > deadline) die("no acknowledgement within a minute");
        turn_crowd(deadline);
    }
    print_result("produce", done, done * size, (double)(now_ns() - start) / 1e9);
}

static void count_message(struct peer *peer, const uint8_t *value) {
    (void)value;
    read_messages++;
    if (peer->read == options->messages) finished_ns = now_ns();
}

static void ask_on(struct peer *peer) {
    if (peer->read < options->messages) crowd.protocol->ask(peer);
}

void run_peer_fetch(const struct options *given) {
    options = given;
    if (!options->messages) die("fetch of %s needs --messages: how many there are", options->protocol);
    crowd.delivered = count_message;
    crowd.refill = ask_on;
    open_crowd(options, 0, options->connections);
    uint64_t start = now_ns(), all = options->messages * (uint64_t)options->connections, last = start, before = 0;
    if (options->seconds > 0) end_ns = start + (uint64_t)(options->seconds * 1e9);
    for (int i = 0; i < crowd.count; i++) {
        ask_on(&crowd.peers[i]);
        send_out(&crowd.peers[i]);
    }
    while (read_messages < all && (!end_ns || now_ns() < end_ns)) {
        turn_crowd(now_ns() + 10000000);
        if (read_messages > before) last = now_ns();
        before = read_messages;
        if (now_ns() - last > 30000000000u) die("no message for 30 s: are there %" PRIu64 "?", options->messages);
    }
    if (read_messages < all) finished_ns = now_ns();
    uint64_t bytes = read_messages * options->message_bytes, at_once = options->max_bytes / options->message_bytes;
    uint64_t asked = read_messages / (at_once ? at_once : 1);
    print_result("fetch", asked ? asked : 1, bytes, (double)(finished_ns - start) / 1e9);
}
