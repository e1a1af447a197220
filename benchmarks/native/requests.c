/* Produce, Fetch, ListOffsets and Metadata: requests made, responses read. */

#include "load.h"

static const char CLIENT_ID[] = "penstock-load";
/* What a count of one byte can say. */
enum { MAX_ONE_BYTE = 126 };

static uint8_t *begin(struct request *request, int api, int version) {
    request->form = form_of(api, version);
    uint8_t *at = put32(request->head, 0);
    at = put16(at, (uint16_t)api);
    at = put16(at, (uint16_t)version);
    at = put32(at, request->correlation);
    at = put16(at, sizeof CLIENT_ID - 1);
    at = put_bytes(at, CLIENT_ID, sizeof CLIENT_ID - 1);
    return put_tags(at, request->form);
}

static void end(struct request *request, const uint8_t *at) {
    request->head_size = (size_t)(at - request->head);
    if (request->head_size > request->head_capacity) die("a bug: the head of a request is too large");
    put32(request->head, (uint32_t)(request->head_size - 4 + request->body_size + request->tail));
}

static uint8_t *put_topic(uint8_t *at, struct form form, const struct options *options, int topic) {
    if (form.has_ids) return put_bytes(at, options->topic_ids[topic], LENGTH_OF_ID);
    return put_name(at, form, options->topics[topic], strlen(options->topics[topic]));
}

static bool is_topic(const struct options *options, struct form form, int topic, const uint8_t *named, uint64_t size) {
    if (form.has_ids) return !memcmp(options->topic_ids[topic], named, LENGTH_OF_ID);
    return strlen(options->topics[topic]) == size && !memcmp(options->topics[topic], named, size);
}

void make_produce(struct request *request, const struct options *options, int partition, const uint8_t *batch,
                  size_t size) {
    uint8_t *at = begin(request, API_PRODUCE, options->produce_version);
    struct form form = request->form;
    /* No transactional id. */
    at = form.is_flexible ? put8(at, 0) : put16(at, UINT16_MAX);
    at = put16(at, (uint16_t)options->acks);
    at = put32(at, 30000);
    at = put_count(at, form, 1);
    at = put_topic(at, form, options, partition % options->topic_count);
    at = put_count(at, form, 1);
    at = put32(at, (uint32_t)index_of(options, partition));
    at = put_count(at, form, size);
    request->body = batch;
    request->body_size = size;
    /* Tagged fields, of which there are none, of the partition, the topic and the request. */
    request->tail = form.is_flexible ? 3 : 0;
    request->partition = partition;
    end(request, at);
}

int read_produce(const struct request *request, struct reader *body, uint64_t *base_offset) {
    struct form form = request->form;
    uint64_t size;
    if (get_count(body, form) != 1) die("a Produce response without its topic");
    get_topic(body, form, &size);
    if (get_count(body, form) != 1) die("a Produce response without its partition");
    get32(body);
    int error = (int16_t)get16(body);
    *base_offset = get64(body);
    if (body->bad) die("a Produce response that cannot be read");
    return error;
}

static uint8_t *put_wanted(uint8_t *at, struct form form, const struct options *options, const struct wanted *wanted) {
    at = put32(at, (uint32_t)index_of(options, wanted->partition));
    if (form.version >= 9) at = put32(at, UINT32_MAX);
    at = put64(at, wanted->offset);
    if (form.version >= 12) at = put32(at, UINT32_MAX);
    if (form.version >= 5) at = put64(at, UINT64_MAX);
    at = put32(at, options->max_bytes);
    return put_tags(at, form);
}

void make_fetch(struct request *request, const struct options *options, const struct wanted *wanted, int count,
                uint32_t max_wait_ms) {
    uint8_t *at = begin(request, API_FETCH, options->fetch_version);
    struct form form = request->form;
    if (form.version < 15) at = put32(at, UINT32_MAX);
    at = put32(at, max_wait_ms);
    at = put32(at, 1);
    at = put32(at, options->max_bytes);
    at = put8(at, 0);
    if (form.version >= 7) at = put32(put32(at, 0), UINT32_MAX);
    uint8_t *topics = at;
    uint64_t topic_count = 0;
    at = put_count(at, form, 0);
    for (int topic = 0; topic < options->topic_count; topic++) {
        uint64_t parts = 0;
        for (int i = 0; i < count; i++) parts += wanted[i].partition % options->topic_count == topic;
        if (!parts) continue;
        topic_count++;
        at = put_topic(at, form, options, topic);
        at = put_count(at, form, parts);
        for (int i = 0; i < count; i++)
            if (wanted[i].partition % options->topic_count == topic) at = put_wanted(at, form, options, &wanted[i]);
        at = put_tags(at, form);
    }
    /* One byte in flexible versions, so that it can be known last. */
    if (topic_count > MAX_ONE_BYTE) die("one fetch takes at most %d topics, not %d", MAX_ONE_BYTE, (int)topic_count);
    put_count(topics, form, topic_count);
    if (form.version >= 7) at = put_count(at, form, 0);
    if (form.version >= 11) at = put_name(at, form, "", 0);
    at = put_tags(at, form);
    end(request, at);
}

static int number_of(const struct options *options, struct form form, const uint8_t *named, uint64_t size,
                     uint32_t index) {
    for (int topic = 0; topic < options->topic_count; topic++)
        if (is_topic(options, form, topic, named, size)) return (int)index * options->topic_count + topic;
    die("a response about another topic");
}

void read_fetch(const struct options *options, const struct request *request, struct reader *body,
                void (*found)(struct fetched *part, void *context), void *context) {
    struct form form = request->form;
    get32(body);
    int error = form.version >= 7 ? (int16_t)get16(body) : 0;
    if (form.version >= 7) get32(body);
    if (error) die("Fetch failed with error %d", error);
    for (uint64_t topics = get_count(body, form); topics && !body->bad; topics--) {
        uint64_t size;
        const uint8_t *named = get_topic(body, form, &size);
        for (uint64_t parts = get_count(body, form); parts && !body->bad; parts--) {
            struct fetched part;
            part.partition = number_of(options, form, named, size, get32(body));
            part.error = (int16_t)get16(body);
            part.high_watermark = get64(body);
            get64(body);
            if (form.version >= 5) get64(body);
            for (uint64_t aborted = get_count(body, form); aborted && !body->bad; aborted--) {
                take(body, 16);
                skip_tags(body, form);
            }
            if (form.version >= 11) get32(body);
            uint64_t bytes = get_count(body, form);
            const uint8_t *records = take(body, bytes);
            skip_tags(body, form);
            if (body->bad) break;
            part.records = (struct reader){records, records + bytes, false};
            found(&part, context);
        }
        skip_tags(body, form);
    }
    if (body->bad) die("a Fetch response that cannot be read");
}

void make_list_offsets(struct request *request, const struct options *options, int partition, uint64_t timestamp) {
    uint8_t *at = begin(request, API_LIST_OFFSETS, LIST_OFFSETS_VERSION);
    at = put32(at, UINT32_MAX);
    at = put8(at, 0);
    at = put_count(at, request->form, 1);
    at = put_topic(at, request->form, options, partition % options->topic_count);
    at = put_count(at, request->form, 1);
    at = put32(at, (uint32_t)index_of(options, partition));
    at = put32(at, UINT32_MAX);
    at = put64(at, timestamp);
    at = put_bytes(at, "\0\0\0", 3);
    request->partition = partition;
    end(request, at);
}

uint64_t read_list_offsets(const struct request *request, struct reader *body) {
    get32(body);
    if (get_count(body, request->form) != 1) die("a ListOffsets response without its topic");
    skip_name(body, request->form);
    if (get_count(body, request->form) != 1) die("a ListOffsets response without its partition");
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
    listed = read_list_offsets(request, body);
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

static uint8_t found_id[LENGTH_OF_ID];

static void read_metadata(struct connection *connection, struct request *request, struct reader *body) {
    (void)connection;
    struct form form = request->form;
    get32(body);
    for (uint64_t brokers = get_count(body, form); brokers && !body->bad; brokers--) {
        get32(body);
        skip_name(body, form);
        get32(body);
        skip_name(body, form);
        skip_tags(body, form);
    }
    skip_name(body, form);
    get32(body);
    if (get_count(body, form) != 1) die("a Metadata response without its topic");
    int error = (int16_t)get16(body);
    skip_name(body, form);
    memcpy(found_id, take(body, LENGTH_OF_ID), LENGTH_OF_ID);
    if (body->bad) die("a Metadata response that cannot be read");
    if (error) die("Metadata failed with error %d: is the topic there?", error);
}

void find_topic_ids(struct options *options) {
    if (!form_of(API_PRODUCE, options->produce_version).has_ids && !form_of(API_FETCH, options->fetch_version).has_ids)
        return;
    struct loop loop = {.answered = read_metadata};
    open_loop(&loop, options, 1, 1);
    for (int topic = 0; topic < options->topic_count; topic++) {
        struct request *request = new_request(loop.connections, HEAD_BYTES);
        uint8_t *at = begin(request, API_METADATA, METADATA_VERSION);
        at = put_count(at, request->form, 1);
        at = put64(put64(at, 0), 0);
        at = put_name(at, request->form, options->topics[topic], strlen(options->topics[topic]));
        at = put_tags(at, request->form);
        /* It is not to be made if it is not there, and its permissions do not matter. */
        at = put_bytes(at, "\0\0\0", 3);
        end(request, at);
        send_requests(loop.connections);
        drain(&loop, 30);
        memcpy(options->topic_ids[topic], found_id, LENGTH_OF_ID);
    }
    close_loop(&loop);
}
