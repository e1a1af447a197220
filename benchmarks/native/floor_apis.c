/* Produce, Fetch and ListOffsets, in the versions that the load generator speaks. */

#include <unistd.h>

#include "floor.h"

/* Below this a read and a copy are cheaper than what sendfile costs. */
enum { SENDFILE_FROM = 65536, CORRUPT_MESSAGE = 2, REPLY_BYTES = 512 };

static void produce(struct connection *connection, uint32_t correlation, struct reader *body) {
    skip_name(body);
    int acks = (int16_t)get16(body);
    get32(body);
    if (get_count(body) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size = get_count(body);
    const uint8_t *topic = take(body, topic_size);
    if (get_count(body) != 1) die("the floor takes one partition in a request");
    uint32_t index = get32(body);
    uint64_t size = get_count(body);
    uint8_t *batch = (uint8_t *)take(body, size);
    if (body->bad) die("a Produce request that cannot be read");
    struct log *log = find_log(topic, topic_size, index);
    int64_t offset = append(log, batch, size);
    if (acks == 0) return;
    uint8_t *reply = reserve(connection, REPLY_BYTES, acks == -1 && offset >= 0 ? round_to_wait_for() : 0);
    uint8_t *at = reply + 4;
    at = put32(at, correlation);
    at = put8(at, 0);
    at = put8(at, 2);
    at = put_name(at, log->topic);
    at = put8(at, 2);
    at = put32(at, index);
    at = put16(at, offset < 0 ? CORRUPT_MESSAGE : 0);
    at = put64(at, (uint64_t)offset);
    at = put64(at, UINT64_MAX);
    at = put64(at, 0);
    /* No errors of records, no message, no tagged fields of partition and topic. */
    at = put_bytes(at, "\1\0\0\0", 4);
    at = put32(at, 0);
    at = put8(at, 0);
    put32(reply, (uint32_t)(at - reply - 4));
    commit(connection, (size_t)(at - reply));
}

struct part {
    struct log *log;
    struct range range;
};

/* Bytes of one partition's answer besides the records and their length. */
enum { PART_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 4 + 1 };

static size_t unsigned_size(uint64_t value) {
    uint8_t bytes[10];
    return (size_t)(put_unsigned(bytes, value) - bytes);
}

static uint8_t *put_part(uint8_t *at, const struct part *part) {
    uint64_t end = end_offset(part->log);
    at = put32(at, part->log->index);
    at = put16(at, 0);
    at = put64(at, end);
    at = put64(at, end);
    at = put64(at, 0);
    at = put8(at, 0);
    at = put32(at, UINT32_MAX);
    return put_unsigned(at, part->range.size + 1);
}

/* All partitions of one topic; nothing was sent if the result is false. */
static bool fetch(struct connection *connection, uint32_t correlation, struct reader *body, bool is_late) {
    static struct part parts[MAX_PARTS];
    get32(body);
    uint64_t wait_ms = get32(body);
    get32(body);
    uint64_t left = get32(body), found = 0;
    take(body, 9);
    if (get_count(body) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size = get_count(body);
    const uint8_t *topic = take(body, topic_size);
    uint64_t count = get_count(body);
    if (count > MAX_PARTS) die("a Fetch request of %d partitions", (int)count);
    size_t size = 4 + 1 + 4 + 2 + 4 + 1 + unsigned_size(topic_size + 1) + topic_size + unsigned_size(count + 1) + 2;
    for (uint64_t i = 0; i < count; i++) {
        struct log *log = find_log(topic, topic_size, get32(body));
        get32(body);
        uint64_t offset = get64(body);
        take(body, 12);
        uint64_t max_bytes = get32(body);
        skip_tags(body);
        struct range range = {log->fd, 0, 0};
        if (left) range = find_range(log, offset, max_bytes < left ? max_bytes : left);
        left -= range.size < left ? range.size : left;
        found += range.size;
        parts[i] = (struct part){log, range};
        size += PART_BYTES + unsigned_size(range.size + 1) + range.size;
    }
    if (body->bad) die("a Fetch request that cannot be read");
    if (!found && wait_ms && !is_late) {
        connection->waits_until_ns = now_ns() + wait_ms * 1000000u;
        return false;
    }
    uint8_t *reply = reserve(connection, REPLY_BYTES, 0), *at = put32(reply, (uint32_t)size);
    at = put32(at, correlation);
    at = put8(at, 0);
    at = put32(at, 0);
    at = put16(at, 0);
    at = put32(at, 0);
    at = put8(at, 2);
    at = put_bytes(put_unsigned(at, topic_size + 1), topic, topic_size);
    at = put_unsigned(at, count + 1);
    for (uint64_t i = 0; i < count; i++) {
        struct range range = parts[i].range;
        at = put_part(at, &parts[i]);
        commit(connection, (size_t)(at - reply));
        if (range.size >= SENDFILE_FROM) {
            send_range(connection, range);
        } else if (range.size) {
            uint8_t *into = reserve(connection, range.size, 0);
            if (pread(range.fd, into, range.size, range.begin) != (ssize_t)range.size) die("a log is too short");
            commit(connection, range.size);
        }
        reply = at = reserve(connection, REPLY_BYTES, 0);
        at = put8(at, 0);
    }
    at = put16(at, 0);
    commit(connection, (size_t)(at - reply));
    return true;
}

static void list_offsets(struct connection *connection, uint32_t correlation, struct reader *body) {
    take(body, 5);
    if (get_count(body) != 1) die("the floor takes one topic in a request");
    uint64_t topic_size = get_count(body);
    const uint8_t *topic = take(body, topic_size);
    if (get_count(body) != 1) die("the floor takes one partition in a request");
    struct log *log = find_log(topic, topic_size, get32(body));
    if (body->bad) die("a ListOffsets request that cannot be read");
    uint8_t *reply = reserve(connection, REPLY_BYTES, 0), *at = reply + 4;
    at = put32(at, correlation);
    at = put8(at, 0);
    at = put32(at, 0);
    at = put8(at, 2);
    at = put_name(at, log->topic);
    at = put8(at, 2);
    at = put32(at, log->index);
    at = put16(at, 0);
    at = put64(at, UINT64_MAX);
    at = put64(at, end_offset(log));
    at = put32(at, 0);
    at = put_bytes(at, "\0\0\0", 3);
    put32(reply, (uint32_t)(at - reply - 4));
    commit(connection, (size_t)(at - reply));
}

bool handle(struct connection *connection, uint8_t *request, size_t size, bool is_late) {
    struct reader body = {request, request + size, false};
    int api = get16(&body), version = get16(&body);
    uint32_t correlation = get32(&body);
    uint16_t client_size = get16(&body);
    take(&body, client_size == UINT16_MAX ? 0 : client_size);
    skip_tags(&body);
    if (api == API_PRODUCE && version == PRODUCE_VERSION)
        produce(connection, correlation, &body);
    else if (api == API_FETCH && version == FETCH_VERSION)
        return fetch(connection, correlation, &body, is_late);
    else if (api == API_LIST_OFFSETS && version == LIST_OFFSETS_VERSION)
        list_offsets(connection, correlation, &body);
    else
        die("the floor does not know API %d in version %d", api, version);
    return true;
}
