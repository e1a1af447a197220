/* Produce, Fetch, ListOffsets and Metadata, in the versions that the load generator speaks. A topic's id is its name,
 * filled up with zeros, so that none has to be remembered. */

#include <unistd.h>

#include "floor.h"

/* Below this a read and a copy are cheaper than what sendfile costs. */
enum { SENDFILE_FROM = 65536, CORRUPT_MESSAGE = 2, REPLY_BYTES = 512 };

/* The size of the name within what names the topic. */
static uint64_t name_size(struct form form, const uint8_t *topic, uint64_t size) {
    return form.has_ids ? strnlen((const char *)topic, size) : size;
}

static uint8_t *put_topic(uint8_t *at, struct form form, const uint8_t *topic, uint64_t size) {
    return form.has_ids ? put_bytes(at, topic, size) : put_name(at, form, topic, size);
}

static void produce(struct connection *connection, uint32_t correlation, struct form form, struct reader *body) {
    skip_name(body, form);
    int acks = (int16_t)get16(body);
    get32(body);
    if (get_count(body, form) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size;
    const uint8_t *topic = get_topic(body, form, &topic_size);
    if (get_count(body, form) != 1) die("the floor takes one partition in a request");
    uint32_t index = get32(body);
    uint64_t size = get_count(body, form);
    uint8_t *batch = (uint8_t *)take(body, size);
    if (body->bad) die("a Produce request that cannot be read");
    struct log *log = find_log(topic, name_size(form, topic, topic_size), index);
    int64_t offset = append(log, batch, size);
    if (acks == 0) return;
    uint8_t *reply = reserve(connection, REPLY_BYTES, acks == -1 && offset >= 0 ? round_to_wait_for() : 0);
    uint8_t *at = reply + 4;
    at = put32(at, correlation);
    at = put_tags(at, form);
    at = put_count(at, form, 1);
    at = put_topic(at, form, topic, topic_size);
    at = put_count(at, form, 1);
    at = put32(at, index);
    at = put16(at, offset < 0 ? CORRUPT_MESSAGE : 0);
    at = put64(at, (uint64_t)offset);
    at = put64(at, UINT64_MAX);
    if (form.version >= 5) at = put64(at, 0);
    /* No errors of records, no message. */
    if (form.version >= 8) {
        at = put_count(at, form, 0);
        at = form.is_flexible ? put8(at, 0) : put16(at, UINT16_MAX);
    }
    at = put_tags(put_tags(at, form), form);
    at = put32(at, 0);
    at = put_tags(at, form);
    put32(reply, (uint32_t)(at - reply - 4));
    commit(connection, (size_t)(at - reply));
}

struct part {
    struct log *log;
    struct range range;
};

static uint8_t *put_part(uint8_t *at, struct form form, const struct part *part) {
    uint64_t end = end_offset(part->log);
    at = put32(at, part->log->index);
    at = put16(at, 0);
    at = put64(at, end);
    at = put64(at, end);
    if (form.version >= 5) at = put64(at, 0);
    /* No transactions that were aborted. */
    at = form.is_flexible ? put8(at, 0) : put32(at, UINT32_MAX);
    if (form.version >= 11) at = put32(at, UINT32_MAX);
    return put_count(at, form, part->range.size);
}

/* The head of a response, its size left open. */
static uint8_t *put_head(uint8_t *at, struct form form, uint32_t correlation, const uint8_t *topic, uint64_t topic_size,
                         uint64_t parts) {
    at = put32(put32(at, 0), correlation);
    at = put_tags(at, form);
    at = put32(at, 0);
    if (form.version >= 7) at = put32(put16(at, 0), 0);
    at = put_count(at, form, 1);
    at = put_topic(at, form, topic, topic_size);
    return put_count(at, form, parts);
}

/* All partitions of one topic; nothing was sent if the result is false. */
static bool fetch(struct connection *connection, uint32_t correlation, struct form form, struct reader *body,
                  bool is_late) {
    static struct part parts[MAX_PARTS];
    uint8_t scratch[REPLY_BYTES];
    if (form.version < 15) get32(body);
    uint64_t wait_ms = get32(body);
    get32(body);
    uint64_t left = get32(body), found = 0;
    take(body, form.version >= 7 ? 9 : 1);
    if (get_count(body, form) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size;
    const uint8_t *topic = get_topic(body, form, &topic_size);
    uint64_t count = get_count(body, form);
    if (count > MAX_PARTS) die("a Fetch request of %d partitions", (int)count);
    /* In flexible versions tagged fields end each partition, the topic and the response. */
    size_t size = (size_t)(put_head(scratch, form, correlation, topic, topic_size, count) - scratch) - 4;
    size += form.is_flexible ? 2 + count : 0;
    for (uint64_t i = 0; i < count; i++) {
        struct log *log = find_log(topic, name_size(form, topic, topic_size), get32(body));
        if (form.version >= 9) get32(body);
        uint64_t offset = get64(body);
        take(body, (form.version >= 12 ? 4 : 0) + (form.version >= 5 ? 8 : 0));
        uint64_t max_bytes = get32(body);
        skip_tags(body, form);
        struct range range = {log->fd, 0, 0};
        if (left) range = find_range(log, offset, max_bytes < left ? max_bytes : left);
        left -= range.size < left ? range.size : left;
        found += range.size;
        parts[i] = (struct part){log, range};
        size += (size_t)(put_part(scratch, form, &parts[i]) - scratch) + range.size;
    }
    if (body->bad) die("a Fetch request that cannot be read");
    if (!found && wait_ms && !is_late) {
        connection->waits_until_ns = now_ns() + wait_ms * 1000000u;
        return false;
    }
    uint8_t *reply = reserve(connection, REPLY_BYTES, 0);
    uint8_t *at = put_head(reply, form, correlation, topic, topic_size, count);
    put32(reply, (uint32_t)size);
    for (uint64_t i = 0; i < count; i++) {
        struct range range = parts[i].range;
        at = put_part(at, form, &parts[i]);
        commit(connection, (size_t)(at - reply));
        if (range.size >= SENDFILE_FROM) {
            send_range(connection, range);
        } else if (range.size) {
            uint8_t *into = reserve(connection, range.size, 0);
            if (pread(range.fd, into, range.size, range.begin) != (ssize_t)range.size) die("a log is too short");
            commit(connection, range.size);
        }
        reply = at = reserve(connection, REPLY_BYTES, 0);
        at = put_tags(at, form);
    }
    at = put_tags(put_tags(at, form), form);
    commit(connection, (size_t)(at - reply));
    return true;
}

static void list_offsets(struct connection *connection, uint32_t correlation, struct form form, struct reader *body) {
    take(body, 5);
    if (get_count(body, form) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size;
    const uint8_t *topic = get_topic(body, form, &topic_size);
    if (get_count(body, form) != 1) die("the floor takes one partition in a request");
    struct log *log = find_log(topic, topic_size, get32(body));
    if (body->bad) die("a ListOffsets request that cannot be read");
    uint8_t *reply = reserve(connection, REPLY_BYTES, 0), *at = reply + 4;
    at = put32(at, correlation);
    at = put8(at, 0);
    at = put32(at, 0);
    at = put_count(at, form, 1);
    at = put_name(at, form, topic, topic_size);
    at = put_count(at, form, 1);
    at = put32(at, log->index);
    at = put16(at, 0);
    at = put64(at, UINT64_MAX);
    at = put64(at, end_offset(log));
    at = put32(at, 0);
    at = put_bytes(at, "\0\0\0", 3);
    put32(reply, (uint32_t)(at - reply - 4));
    commit(connection, (size_t)(at - reply));
}

/* The id of one topic, and no brokers and partitions: who asks knows those. */
static void metadata(struct connection *connection, uint32_t correlation, struct form form, struct reader *body) {
    if (get_count(body, form) != 1) die("the floor takes one topic in a request");
    take(body, LENGTH_OF_ID);
    uint64_t size = get_name_size(body, form);
    const uint8_t *topic = take(body, size);
    if (body->bad) die("a Metadata request that cannot be read");
    if (size > LENGTH_OF_ID) die("the floor takes names of topics of at most %d characters", LENGTH_OF_ID);
    uint8_t id[LENGTH_OF_ID] = {0};
    memcpy(id, topic, size);
    uint8_t *reply = reserve(connection, REPLY_BYTES, 0), *at = reply + 4;
    at = put32(at, correlation);
    at = put_tags(at, form);
    at = put32(at, 0);
    at = put_count(at, form, 0);
    /* No id of the cluster, and no controller. */
    at = put32(put8(at, 0), UINT32_MAX);
    at = put_count(at, form, 1);
    at = put16(at, 0);
    at = put_name(at, form, topic, size);
    at = put_bytes(at, id, sizeof id);
    at = put8(at, 0);
    at = put_count(at, form, 0);
    at = put32(at, 0);
    at = put_tags(put_tags(at, form), form);
    put32(reply, (uint32_t)(at - reply - 4));
    commit(connection, (size_t)(at - reply));
}

bool handle(struct connection *connection, uint8_t *request, size_t size, bool is_late) {
    struct reader body = {request, request + size, false};
    int api = get16(&body), version = get16(&body);
    struct form form = form_of(api, version);
    uint32_t correlation = get32(&body);
    uint16_t client_size = get16(&body);
    take(&body, client_size == UINT16_MAX ? 0 : client_size);
    skip_tags(&body, form);
    if (api == API_PRODUCE && version >= PRODUCE_FIRST && version <= PRODUCE_LAST)
        produce(connection, correlation, form, &body);
    else if (api == API_FETCH && version >= FETCH_FIRST && version <= FETCH_LAST)
        return fetch(connection, correlation, form, &body, is_late);
    else if (api == API_LIST_OFFSETS && version == LIST_OFFSETS_VERSION)
        list_offsets(connection, correlation, form, &body);
    else if (api == API_METADATA && version == METADATA_VERSION)
        metadata(connection, correlation, form, &body);
    else
        die("the floor does not know API %d in version %d", api, version);
    return true;
}
