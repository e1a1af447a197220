/* produce: batches that are made once, as fast as the broker takes them. */

#include "batch.h"
#include "load.h"

static const struct options *options;
static uint8_t *batch;
static size_t size;
static uint64_t requests, errors, answered_requests, end_ns;
static int first_error;
static struct histogram latency;

static bool has_more(uint64_t now) {
    return (!options->requests || requests < options->requests) && (!end_ns || now < end_ns);
}

static void refill(struct connection *connection) {
    uint64_t now = now_ns();
    for (; has_room(connection) && has_more(now); requests++) {
        /* Connections begin at different partitions, and each goes through all of them. */
        uint64_t turn = (uint64_t)connection->number * (uint64_t)partition_count(options) /
                            (uint64_t)options->connections + connection->queued;
        struct request *request = new_request(connection, HEAD_BYTES);
        make_produce(request, options, (int)(turn % (uint64_t)partition_count(options)), batch, size);
        request->begun_ns = now;
    }
}

static void answered(struct connection *connection, struct request *request, struct reader *body) {
    uint64_t offset;
    int error = read_produce(request, body, &offset);
    if (error) {
        errors++;
        first_error = first_error ? first_error : error;
    }
    record(&latency, now_ns() - request->begun_ns);
    answered_requests++;
    (void)connection;
}

static void listed(struct connection *connection, struct request *request, struct reader *body) {
    (void)connection;
    read_list_offsets(request, body);
}

/* Without acknowledgements the socket says how much goes out, and the reply to another request when all is in. */
static void send_unacknowledged(struct loop *loop) {
    bool is_done = false;
    while (!is_done) {
        bool all_full = true;
        is_done = !has_more(now_ns());
        for (int i = 0; i < loop->count; i++) {
            struct connection *connection = &loop->connections[i];
            connection->done = connection->sent;
            refill(connection);
            send_requests(connection);
            all_full &= connection->wants_to_send;
            is_done &= !connection->wants_to_send;
        }
        turn(loop, all_full ? now_ns() + 1000000 : 0);
    }
    loop->answered = listed;
    for (int i = 0; i < loop->count; i++) {
        loop->connections[i].done = loop->connections[i].sent;
        make_list_offsets(new_request(&loop->connections[i], HEAD_BYTES), options, 0, LATEST);
        send_requests(&loop->connections[i]);
    }
    drain(loop, 60);
    answered_requests = requests;
}

static void send_acknowledged(struct loop *loop) {
    for (int i = 0; i < loop->count; i++) {
        refill(&loop->connections[i]);
        send_requests(&loop->connections[i]);
    }
    loop->refill = refill;
    while (has_more(now_ns())) turn(loop, now_ns() + 100000000);
    drain(loop, 60);
}

void run_produce(const struct options *given) {
    options = given;
    int messages = messages_within(options->batch_bytes, options->message_bytes);
    size = batch_size(messages, options->message_bytes);
    batch = allocate(size);
    uint8_t *at = batch + BATCH_HEADER;
    for (int number = 0; number < messages; number++) {
        at = begin_record(at, number, options->message_bytes);
        fill_random(at, options->message_bytes);
        at = put8(at + options->message_bytes, 0);
    }
    seal_batch(batch, at, messages, wall_clock_ms());

    struct loop loop = {.answered = answered, .spin = options->spin};
    open_loop(&loop, options, options->connections, (uint64_t)options->in_flight);
    uint64_t begun = now_ns();
    if (options->seconds > 0) end_ns = begun + (uint64_t)(options->seconds * 1e9);
    if (options->acks == 0)
        send_unacknowledged(&loop);
    else
        send_acknowledged(&loop);
    double seconds = (double)(now_ns() - begun) / 1e9;

    uint64_t good = answered_requests - errors;
    printf("{\"mode\": \"produce\", \"requests\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"batch_bytes\": %zu, \"messages_per_batch\": %d, \"seconds\": %.6f, \"errors\": %" PRIu64
           ", \"first_error\": %d, \"latency\": ",
           answered_requests, good * (uint64_t)messages, good * size, size, messages, seconds, errors, first_error);
    print_histogram(&latency, options->buckets);
    printf("}\n");
}
