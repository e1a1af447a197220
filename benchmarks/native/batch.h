/* Record batches: built around messages of one size, and walked through as a broker sent them. */

#ifndef BATCH_H
#define BATCH_H

#include "crc32c.h"
#include "wire.h"

static inline size_t varint_size(int64_t value) {
    uint8_t bytes[10];
    return (size_t)(put_varint(bytes, value) - bytes);
}

/* Without key and headers, with no timestamp of its own. */
static inline size_t record_body_size(int number, size_t value_size) {
    return 1 + 1 + varint_size(number) + 1 + varint_size((int64_t)value_size) + value_size + 1;
}

static inline size_t record_size(int number, size_t value_size) {
    size_t body = record_body_size(number, value_size);
    return varint_size((int64_t)body) + body;
}

static inline size_t batch_size(int messages, size_t value_size) {
    size_t size = BATCH_HEADER;
    for (int number = 0; number < messages; number++) size += record_size(number, value_size);
    return size;
}

/* As many messages as fit into a batch of this size, and at least one. */
static inline int messages_within(size_t size, size_t value_size) {
    int messages = 1;
    for (size_t used = BATCH_HEADER + record_size(0, value_size); used + record_size(messages, value_size) <= size;)
        used += record_size(messages++, value_size);
    return messages;
}

/* Writes the head of the record; its value goes where the result points to, and a zero byte behind it. */
static inline uint8_t *begin_record(uint8_t *at, int number, size_t value_size) {
    at = put_varint(at, (int64_t)record_body_size(number, value_size));
    at = put8(at, 0);
    at = put_varint(at, 0);
    at = put_varint(at, number);
    at = put_varint(at, -1);
    return put_varint(at, (int64_t)value_size);
}

/* The header for records that lie behind it already, up to `end`. */
static inline void seal_batch(uint8_t *batch, const uint8_t *end, int messages, uint64_t timestamp_ms) {
    uint8_t *at = put64(batch, 0);
    at = put32(at, (uint32_t)(end - batch - 12));
    at = put32(at, 0);
    at = put8(at, 2);
    uint8_t *covered = put32(at, 0);
    at = put16(covered, 0);
    at = put32(at, (uint32_t)(messages - 1));
    at = put64(at, timestamp_ms);
    at = put64(at, timestamp_ms);
    at = put64(at, UINT64_MAX);
    at = put16(at, UINT16_MAX);
    at = put32(at, UINT32_MAX);
    put32(at, (uint32_t)messages);
    put32(covered - 4, crc32c(covered, (size_t)(end - covered)));
}

static inline uint64_t wall_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Bytes that no compression makes smaller, the same in every run. */
static inline void fill_random(uint8_t *at, size_t size) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at[i] = (uint8_t)(state >> 24);
    }
}

struct batch_view {
    uint64_t base_offset;
    uint32_t messages;
    struct reader records;
    size_t size;
};

/* The next whole batch; false at the end, where a broker may have cut one in two. */
static inline bool next_batch(struct reader *from, struct batch_view *into) {
    size_t left = (size_t)(from->end - from->at);
    if (left < BATCH_HEADER) return false;
    const uint8_t *at = from->at;
    size_t size = 12 + (size_t)load32(at + 8);
    if (size > left) return false;
    if (size < BATCH_HEADER || at[16] != 2) die("what was fetched is no record batch of version 2");
    into->base_offset = load64(at);
    into->messages = load32(at + 57);
    into->records = (struct reader){at + BATCH_HEADER, at + size, false};
    into->size = size;
    from->at += size;
    return true;
}

#endif
