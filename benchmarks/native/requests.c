/* Produce, Fetch and ListOffsets: requests made, responses read. */

#include "load.h"

static const char CLIENT_ID[] = "penstock-load";

static uint8_t *begin(struct request *request, int api, int version) {
    uint8_t *at = put32(request->head, 0);
    at = put16(at, (uint16_t)api);
    at = put16(at, (uint16_t)version);
    at = put32(at, request->correlation);
    at = put16(at, sizeof CLIENT_ID - 1);
    at = put_bytes(at, CLIENT_ID, sizeof CLIENT_ID - 1);
    return put8(at, 0);
}

static void end(struct request *request, const uint8_t *at) {
    request->head_size = (size_t)(at - request->head);
    if (request->head_size > request->head_capacity) die("a bug: the head of a request is too large");
    put32(request->head, (uint32_t)(request->head_size - 4 + request->body_size + request->tail));
}

void make_produce(struct request *request, const struct options *options, int partition, const uint8_t *batch,
                  size_t size) {
    uint8_t *at = begin(request, API_PRODUCE, PRODUCE_VERSION);
    at = put_unsigned(at, 0);
    at = put16(at, (uint16_t)options->acks);
    at = put32(at, 30000);
    at = put_unsigned(at, 2);
    at = put_name(at, topic_of(options, partition));
    at = put_unsigned(at, 2);
    at = put32(at, (uint32_t)index_of(options, partition));
    at = put_unsigned(at, size + 1);
    request->body = batch;
    request->body_size = size;
    /* Tagged fields, of which there are none, of the partition, the topic and the request. */
    request->tail = 3;
    request->partition = partition;
    end(request, at);
}

int read_produce(struct reader *body, uint64_t *base_offset) {
    if (get_count(body) != 1) die("a Produce response without its topic");
    skip_name(body);
    if (get_count(body) != 1) die("a Produce response without its partition");
    get32(body);
    int error = (int16_t)get16(body);
    *base_offset = get64(body);
    if (body->bad) die("a Produce response that cannot be read");
    return error;
}

void make_fetch(struct request *request, const struct options *options, const struct wanted *wanted, int count,
                uint32_t max_wait_ms) {
    uint8_t *at = begin(request, API_FETCH, FETCH_VERSION);
    at = put32(at, UINT32_MAX);
    at = put32(at, max_wait_ms);
    at = put32(at, 1);
    at = put32(at, options->max_bytes);
    at = put8(at, 0);
    at = put32(at, 0);
    at = put32(at, UINT32_MAX);
    uint8_t *topics = at;
    uint64_t topic_count = 0;
    at = put_unsigned(at, 1);
    for (int topic = 0; topic < options->topic_count; topic++) {
        uint64_t parts = 0;
        for (int i = 0; i < count; i++) parts += wanted[i].partition % options->topic_count == topic;
        if (!parts) continue;
        topic_count++;
        at = put_name(at, options->topics[topic]);
        at = put_unsigned(at, parts + 1);
        for (int i = 0; i < count; i++) {
            if (wanted[i].partition % options->topic_count != topic) continue;
            at = put32(at, (uint32_t)index_of(options, wanted[i].partition));
            at = put32(at, UINT32_MAX);
            at = put64(at, wanted[i].offset);
            at = put32(at, UINT32_MAX);
            at = put64(at, UINT64_MAX);
            at = put32(at, options->max_bytes);
            at = put8(at, 0);
        }
        at = put8(at, 0);
    }
    /* One byte, so that it can be known last. */
    if (topic_count > 126) die("one fetch takes at most 126 topics, not %d", (int)topic_count);
    put_unsigned(topics, topic_count + 1);
    at = put_unsigned(at, 1);
    at = put_unsigned(at, 1);
    at = put_unsigned(at, 0);
    end(request, at);
}

static int number_of(const struct options *options, const uint8_t *name, uint64_t size, uint32_t index) {
    for (int topic = 0; topic < options->topic_count; topic++)
        if (strlen(options->topics[topic]) == size && !memcmp(options->topics[topic], name, size))
            return (int)index * options->topic_count + topic;
    die("a response about another topic");
}

void read_fetch(const struct options *options, struct reader *body, void (*found)(struct fetched *part, void *context),
                void *context) {
    get32(body);
    int error = (int16_t)get16(body);
    get32(body);
    if (error) die("Fetch failed with error %d", error);
    for (uint64_t topics = get_count(body); topics && !body->bad; topics--) {
        uint64_t size = get_count(body);
        const uint8_t *name = take(body, size);
        for (uint64_t parts = get_count(body); parts && !body->bad; parts--) {
            struct fetched part;
            part.partition = number_of(options, name, size, get32(body));
            part.error = (int16_t)get16(body);
            part.high_watermark = get64(body);
            get64(body);
            get64(body);
            for (uint64_t aborted = get_count(body); aborted && !body->bad; aborted--) {
                take(body, 16);
                skip_tags(body);
            }
            get32(body);
            uint64_t bytes = get_count(body);
            const uint8_t *records = take(body, bytes);
            skip_tags(body);
            if (body->bad) break;
            part.records = (struct reader){records, records + bytes, false};
            found(&part, context);
        }
        skip_tags(body);
    }
    if (body->bad) die("a Fetch response that cannot be read");
}

void make_list_offsets(struct request *request, const struct options *options, int partition, uint64_t timestamp) {
    uint8_t *at = begin(request, API_LIST_OFFSETS, LIST_OFFSETS_VERSION);
    at = put32(at, UINT32_MAX);
    at = put8(at, 0);
    at = put_unsigned(at, 2);
    at = put_name(at, topic_of(options, partition));
    at = put_unsigned(at, 2);
    at = put32(at, (uint32_t)index_of(options, partition));
    at = put32(at, UINT32_MAX);
    at = put64(at, timestamp);
    at = put_bytes(at, "\0\0\0", 3);
    request->partition = partition;
    end(request, at);
}

uint64_t read_list_offsets(struct reader *body) {
    get32(body);
    if (get_count(body) != 1) die("a ListOffsets response without its topic");
    skip_name(body);
    if (get_count(body) != 1) die("a ListOffsets response without its partition");
    get32(body);
    int error = (int16_t)get16(body);
    get64(body);
    uint64_t offset = get64(body);
    if (body->bad) die("a ListOffsets response that cannot be read");
    if (error) die("ListOffsets failed with error %d: are the topic and its partitions there?", error);
    return offset;
}

static uint64_t listed;

static void read_end(struct connection *connection, struct request *request, struct reader *body) {
    (void)connection;
    (void)request;
    listed = read_list_offsets(body);
}

/* One partition a request: it is asked before the load begins, when speed does not matter. */
void list_ends(const struct options *options, uint64_t *ends) {
    struct loop loop = {.answered = read_end};
    open_loop(&loop, options, 1, 1);
    for (int partition = 0; partition < partition_count(options); partition++) {
        make_list_offsets(new_request(loop.connections, HEAD_BYTES), options, partition, LATEST);
        send_requests(loop.connections);
        drain(&loop, 30);
        ends[partition] = listed;
    }
    close_loop(&loop);
}
