/* seek: fetches at random offsets, or lookups of random times, as fast as the broker answers them. */

#include "load.h"

static const struct options *options;
static uint64_t *ends;
static uint64_t requests, bytes, random_state = 0x2545f4914f6cdd1du;
static struct histogram latency;

/* Below the limit, the same in every run. */
static uint64_t random_below(uint64_t limit) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return limit ? random_state % limit : 0;
}

static void refill(struct connection *connection) {
    for (; has_room(connection) && requests < options->requests; requests++) {
        uint64_t now = now_ns();
        int partition = (int)random_below((uint64_t)partition_count(options));
        struct request *request = new_request(connection, HEAD_BYTES);
        if (options->to_ms) {
            uint64_t timestamp = options->from_ms + random_below(options->to_ms - options->from_ms + 1);
            make_list_offsets(request, options, partition, timestamp);
        } else {
            struct wanted wanted = {partition, random_below(ends[partition])};
            make_fetch(request, options, &wanted, 1, 500);
        }
        request->begun_ns = now;
    }
}

static void found(struct fetched *part, void *context) {
    (void)context;
    if (part->error) die("Fetch of partition %d failed with error %d", part->partition, part->error);
    if (part->records.at == part->records.end) die("a Fetch response without messages");
    bytes += (uint64_t)(part->records.end - part->records.at);
}

static void answered(struct connection *connection, struct request *request, struct reader *body) {
    (void)connection;
    if (options->to_ms)
        read_list_offsets(request, body);
    else
        read_fetch(options, request, body, found, NULL);
    record(&latency, now_ns() - request->begun_ns);
}

void run_seek(const struct options *given) {
    options = given;
    if (options->to_ms < options->from_ms) die("--to-ms is before --from-ms");
    ends = allocate((size_t)partition_count(options) * sizeof *ends);
    list_ends(options, ends);
    struct loop loop = {.answered = answered, .refill = refill, .spin = options->spin};
    open_loop(&loop, options, options->connections, (uint64_t)options->in_flight);
    uint64_t begun = now_ns();
    for (int i = 0; i < loop.count; i++) {
        refill(&loop.connections[i]);
        send_requests(&loop.connections[i]);
    }
    drain(&loop, 600);
    double seconds = (double)(now_ns() - begun) / 1e9;
    printf("{\"mode\": \"seek\", \"requests\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.6f, \"errors\": 0, \"first_error\": 0, \"latency\": ",
           requests, bytes, seconds);
    print_histogram(&latency, options->buckets);
    printf("}\n");
}
