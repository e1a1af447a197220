/* fetch: partitions from their beginning to their end, each message once, with a place of its own for each request in
 * flight. */

#include "batch.h"
#include "load.h"

/* One stretch of a partition; a request in flight belongs to one, since only its response tells where the next is. */
struct stretch {
    int partition;
    uint64_t begin, end, next;
    bool is_read;
};

static const struct options *options;
static struct stretch *stretches;
static int stretch_count, next_stretch;
static int loops_done;
static uint64_t requests, bytes, messages, batches, end_ns;
static struct histogram latency;

/* Partitions in turn; if there are fewer than requests in flight, each is cut into several stretches. */
static void cut(const uint64_t *ends, int places) {
    int partitions = partition_count(options);
    int pieces = (places + partitions - 1) / partitions;
    stretches = allocate((size_t)(partitions * pieces) * sizeof *stretches);
    for (int piece = 0; piece < pieces; piece++)
        for (int partition = 0; partition < partitions; partition++) {
            uint64_t count = ends[partition];
            if (options->newest && options->newest < count) count = options->newest;
            uint64_t begin = ends[partition] - count + count * (uint64_t)piece / (uint64_t)pieces;
            uint64_t end = ends[partition] - count + count * (uint64_t)(piece + 1) / (uint64_t)pieces;
            if (begin < end) stretches[stretch_count++] = (struct stretch){partition, begin, end, begin, false};
        }
}

/* False at the end. In a further loop the stretches that are still being read are left out. */
static bool begin_stretch(uint64_t *number) {
    while (loops_done < options->loops) {
        if (next_stretch == stretch_count) {
            next_stretch = 0;
            loops_done++;
            continue;
        }
        struct stretch *stretch = &stretches[next_stretch++];
        if (stretch->is_read) continue;
        stretch->is_read = true;
        stretch->next = stretch->begin;
        *number = (uint64_t)(stretch - stretches);
        return true;
    }
    return false;
}

static void go_on(struct connection *connection, uint64_t number) {
    uint64_t now = now_ns();
    struct request *request = new_request(connection, HEAD_BYTES);
    struct wanted wanted = {stretches[number].partition, stretches[number].next};
    make_fetch(request, options, &wanted, 1, 500);
    request->begun_ns = now;
    request->mark = number;
    requests++;
}

static void found(struct fetched *part, void *context) {
    struct stretch *stretch = context;
    struct batch_view batch;
    if (part->error) die("Fetch of partition %d failed with error %d", part->partition, part->error);
    if (part->partition != stretch->partition) die("a response about another partition");
    bytes += (uint64_t)(part->records.end - part->records.at);
    while (stretch->next < stretch->end && next_batch(&part->records, &batch)) {
        uint64_t end = batch.base_offset + batch.messages;
        bool is_first = stretch->next == stretch->begin;
        if (end <= stretch->next || (is_first ? batch.base_offset > stretch->next : batch.base_offset != stretch->next))
            die("expected offset %" PRIu64 " of partition %d and got a batch from %" PRIu64, stretch->next,
                part->partition, batch.base_offset);
        if (end > stretch->end) end = stretch->end;
        messages += end - stretch->next;
        batches++;
        stretch->next = end;
    }
}

static void answered(struct connection *connection, struct request *request, struct reader *body) {
    uint64_t number = request->mark;
    record(&latency, now_ns() - request->begun_ns);
    read_fetch(options, request, body, found, &stretches[number]);
    if (end_ns && now_ns() >= end_ns) return;
    if (stretches[number].next == stretches[number].end) {
        stretches[number].is_read = false;
        if (!begin_stretch(&number)) return;
    }
    go_on(connection, number);
}

void run_fetch(const struct options *given) {
    options = given;
    uint64_t *ends = allocate((size_t)partition_count(options) * sizeof *ends);
    list_ends(options, ends);
    cut(ends, options->connections * options->in_flight);
    struct loop loop = {.answered = answered, .spin = options->spin};
    open_loop(&loop, options, options->connections, (uint64_t)options->in_flight);
    uint64_t begun = now_ns(), number;
    if (options->seconds > 0) end_ns = begun + (uint64_t)(options->seconds * 1e9);
    for (int place = 0; place < options->in_flight; place++)
        for (int i = 0; i < loop.count && next_stretch < stretch_count && begin_stretch(&number); i++)
            go_on(&loop.connections[i], number);
    for (int i = 0; i < loop.count; i++) send_requests(&loop.connections[i]);
    drain(&loop, options->seconds + 600);
    double seconds = (double)(now_ns() - begun) / 1e9;
    printf("{\"mode\": \"fetch\", \"requests\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"batches\": %" PRIu64
           ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"errors\": 0, \"latency\": ",
           requests, messages, batches, bytes, seconds);
    print_histogram(&latency, options->buckets);
    printf("}\n");
}
