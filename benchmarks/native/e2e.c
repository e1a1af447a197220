/* e2e: messages at a given rate, whatever the broker does, and a consumer that waits for them. The time of a message
 * begins when it was due, not when there was room to send it, and ends when the consumer has it. */

#include <sys/prctl.h>

#include "batch.h"
#include "load.h"

enum { MAX_PHASES = 32, STAMP = 16, CONSUMER_WAIT_MS = 500 };

/* A stretch of time at one rate; `first` is the number of its first message. */
struct phase {
    double rate;
    uint64_t first, count;
    uint64_t begin_ns, duration_ns;
};

/* What became of the messages that were due in one interval of the run. */
struct interval {
    uint64_t acked, received;
    struct histogram latency;
};

static const struct options *options;
static struct loop loop;
static struct phase phases[MAX_PHASES];
static int phase_count;
static uint64_t total, begun_ns, run_ns;
static uint64_t *next_of;
static uint64_t sent, acked, errors, received, duplicates, requests;
static int first_error, batch_limit;
static uint8_t *seen;
static uint8_t *filler;
static uint64_t *offsets;
static struct histogram ack_latency, latency;
static struct interval *intervals;
static int interval_count;

/* "1x10,10x60,1x10" is ten seconds at the rate, sixty at ten times as much, and ten more. */
static void plan(void) {
    char default_schedule[32];
    snprintf(default_schedule, sizeof default_schedule, "1x%g", options->seconds);
    const char *at = options->schedule ? options->schedule : default_schedule;
    while (*at) {
        char *end;
        double factor = strtod(at, &end);
        if (end == at || *end != 'x' || phase_count == MAX_PHASES) die("no schedule like 1x10,10x60,1x10: %s", at);
        at = end + 1;
        double seconds = strtod(at, &end);
        if (end == at || (*end && *end != ',') || factor <= 0) die("no schedule like 1x10,10x60,1x10: %s", at);
        at = *end ? end + 1 : end;
        struct phase *phase = &phases[phase_count++];
        phase->rate = factor * options->rate;
        phase->first = total;
        phase->count = (uint64_t)(phase->rate * seconds);
        phase->begin_ns = run_ns;
        phase->duration_ns = (uint64_t)(seconds * 1e9);
        total += phase->count;
        run_ns += phase->duration_ns;
    }
}

/* When a message is due, counted from the beginning. */
static uint64_t due_ns(uint64_t message) {
    int i = phase_count - 1;
    while (i > 0 && message < phases[i].first) i--;
    return phases[i].begin_ns + (uint64_t)((double)(message - phases[i].first) * 1e9 / phases[i].rate);
}

static struct interval *interval_of(uint64_t due) {
    uint64_t number = due / ((uint64_t)options->interval_ms * 1000000u);
    return &intervals[number < (uint64_t)interval_count ? number : (uint64_t)interval_count - 1];
}

static bool counts(uint64_t due) { return (double)due >= options->warmup_seconds * 1e9; }

/* Messages of connection c are c, c + connections, c + 2 * connections, … */

static void send_batch(struct connection *connection, int messages) {
    struct request *request = new_request(connection, HEAD_BYTES);
    size_t capacity = batch_size(messages, options->message_bytes);
    if (request->own_body_capacity < capacity) {
        free(request->own_body);
        request->own_body = allocate(capacity);
        request->own_body_capacity = capacity;
    }
    uint64_t *next = &next_of[connection->number];
    request->mark = *next;
    uint8_t *at = request->own_body + BATCH_HEADER;
    for (int number = 0; number < messages; number++) {
        at = begin_record(at, number, options->message_bytes);
        put64(put64(at, due_ns(*next)), *next);
        memcpy(at + STAMP, filler, options->message_bytes - STAMP);
        at = put8(at + options->message_bytes, 0);
        *next += (uint64_t)options->connections;
    }
    seal_batch(request->own_body, at, messages, wall_clock_ms());
    int partition = connection->number % partition_count(options);
    make_produce(request, options, partition, request->own_body, (size_t)(at - request->own_body));
    request->messages = (uint64_t)messages;
    sent += (uint64_t)messages;
    requests++;
}

/* Sends what has to go out by now; the result is when there will be something, UINT64_MAX if a response comes first. */
static uint64_t send_due(struct connection *connection, uint64_t now) {
    uint64_t linger = (uint64_t)(options->linger_ms * 1e6), step = (uint64_t)options->connections;
    while (has_room(connection)) {
        uint64_t next = next_of[connection->number];
        if (next >= total) return UINT64_MAX;
        uint64_t last = next + (uint64_t)(batch_limit - 1) * step;
        bool is_full = last < total && due_ns(last) <= now;
        uint64_t when = due_ns(next) + linger;
        if (!is_full && when > now) {
            uint64_t full = last < total ? due_ns(last) : UINT64_MAX;
            return when < full ? when : full;
        }
        int messages = 1;
        while (messages < batch_limit && next + (uint64_t)messages * step < total &&
               due_ns(next + (uint64_t)messages * step) <= now)
            messages++;
        send_batch(connection, messages);
    }
    return UINT64_MAX;
}

static void acknowledged(struct request *request, struct reader *body, uint64_t now) {
    uint64_t offset, messages = request->messages;
    int error = read_produce(request, body, &offset);
    if (error) {
        errors++;
        first_error = first_error ? first_error : error;
    }
    for (uint64_t i = 0; i < messages; i++) {
        uint64_t due = due_ns(request->mark + i * (uint64_t)options->connections);
        interval_of(due)->acked++;
        if (counts(due)) record(&ack_latency, now - due);
    }
    acked += messages;
}

static void consume(struct fetched *part, void *context) {
    uint64_t now = *(uint64_t *)context;
    struct batch_view batch;
    if (part->error) die("Fetch of partition %d failed with error %d", part->partition, part->error);
    while (next_batch(&part->records, &batch)) {
        uint64_t *offset = &offsets[part->partition];
        if (batch.base_offset != *offset)
            die("expected offset %" PRIu64 " of partition %d and got a batch from %" PRIu64, *offset, part->partition,
                batch.base_offset);
        *offset += batch.messages;
        for (uint32_t i = 0; i < batch.messages; i++) {
            uint64_t size = (uint64_t)get_varint(&batch.records);
            struct reader one = {take(&batch.records, size), batch.records.at, false};
            get8(&one);
            get_varint(&one);
            get_varint(&one);
            get_varint(&one);
            if ((uint64_t)get_varint(&one) != options->message_bytes || batch.records.bad || one.bad)
                die("a message of another size");
            uint64_t due = get64(&one), message = get64(&one);
            if (message >= total || due != due_ns(message)) die("a message that nobody sent");
            if (seen[message / 8] & (1u << (message % 8))) {
                duplicates++;
                continue;
            }
            seen[message / 8] |= (uint8_t)(1u << (message % 8));
            received++;
            struct interval *interval = interval_of(due);
            interval->received++;
            record(&interval->latency, now - due);
            if (counts(due)) record(&latency, now - due);
        }
    }
}

/* Consumer k has the partitions k, k + consumers, … */
static void fetch_more(struct connection *connection) {
    int count = 0, partitions = partition_count(options);
    struct wanted wanted[partitions];
    for (int i = connection->number - options->connections; i < partitions; i += options->consumers)
        wanted[count++] = (struct wanted){i, offsets[i]};
    if (count)
        make_fetch(new_request(connection, HEAD_BYTES + 512u * (size_t)partitions), options, wanted, count,
                   CONSUMER_WAIT_MS);
}

static void answered(struct connection *connection, struct request *request, struct reader *body) {
    uint64_t now = now_ns() - begun_ns;
    if (connection->number < options->connections) {
        acknowledged(request, body, now);
        return;
    }
    read_fetch(options, request, body, consume, &now);
    if (received < total) fetch_more(connection);
}

static void print_intervals(void) {
    printf(", \"interval_ms\": %d, \"intervals\": [", options->interval_ms);
    for (int i = 0; i < interval_count; i++) {
        const struct histogram *of = &intervals[i].latency;
        printf("%s{\"acked\": %" PRIu64 ", \"received\": %" PRIu64
               ", \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}",
               i ? ", " : "", intervals[i].acked, intervals[i].received, percentile_us(of, 0.5),
               percentile_us(of, 0.99), (double)of->max / 1e3);
    }
    printf("]");
}

static void prepare(void) {
    if (options->message_bytes < STAMP) die("a message needs %d bytes for its number and time", STAMP);
    if (options->acks == 0) die("e2e measures acknowledgements: acks must be 1 or -1");
    plan();
    batch_limit = options->linger_ms > 0 ? messages_within(options->batch_bytes, options->message_bytes) : 1;
    filler = allocate(options->message_bytes);
    fill_random(filler, options->message_bytes);
    seen = allocate(total / 8 + 1);
    offsets = allocate((size_t)partition_count(options) * sizeof *offsets);
    next_of = allocate((size_t)options->connections * sizeof *next_of);
    for (int i = 0; i < options->connections; i++) next_of[i] = (uint64_t)i;
    interval_count = (int)((run_ns - 1) / ((uint64_t)options->interval_ms * 1000000u)) + 1;
    intervals = allocate((size_t)interval_count * sizeof *intervals);
    list_ends(options, offsets);
}

void run_end_to_end(const struct options *given) {
    options = given;
    prepare();
    /* A timer may be late by this much, which by default is 50 µs. */
    prctl(PR_SET_TIMERSLACK, 1);
    loop = (struct loop){.answered = answered, .spin = options->spin};
    open_loop(&loop, options, options->connections + options->consumers, (uint64_t)options->in_flight);
    for (int i = options->connections; i < loop.count; i++) {
        fetch_more(&loop.connections[i]);
        send_requests(&loop.connections[i]);
    }
    begun_ns = now_ns();
    uint64_t give_up = run_ns + (uint64_t)(options->drain_seconds * 1e9);
    for (;;) {
        uint64_t now = now_ns() - begun_ns, until = now + 100000000u;
        if (now > give_up || (received >= total && acked >= total)) break;
        for (int i = 0; i < options->connections; i++) {
            uint64_t when = send_due(&loop.connections[i], now);
            if (when < until) until = when;
            send_requests(&loop.connections[i]);
        }
        turn(&loop, begun_ns + until);
        for (int i = options->connections; i < loop.count; i++) send_requests(&loop.connections[i]);
    }
    double seconds = (double)(now_ns() - begun_ns) / 1e9;
    printf("{\"mode\": \"e2e\", \"requests\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"acked\": %" PRIu64
           ", \"received\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"errors\": %" PRIu64 ", \"first_error\": %d, \"ack\": ",
           requests, sent, acked, received, total - received, duplicates, received * options->message_bytes, seconds,
           errors, first_error);
    print_histogram(&ack_latency, options->buckets);
    printf(", \"latency\": ");
    print_histogram(&latency, options->buckets);
    print_intervals();
    printf("}\n");
}
