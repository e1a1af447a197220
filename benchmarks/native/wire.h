/* Bytes of Kafka's protocol, written and read in place, and the clock; for the load generator and the floor alike. */

#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { API_PRODUCE = 0, API_FETCH = 1, API_LIST_OFFSETS = 2, API_METADATA = 3 };
/* Versions that are spoken; Produce and Fetch in all that a broker of today knows. */
enum { PRODUCE_FIRST = 3, PRODUCE_LAST = 13, FETCH_FIRST = 4, FETCH_LAST = 18 };
enum { LIST_OFFSETS_VERSION = 6, METADATA_VERSION = 12 };
enum { BATCH_HEADER = 61, LENGTH_OF_NAME = 256, LENGTH_OF_ID = 16 };

#define die(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

/* How a version writes things: flexible ones have short lengths and tagged fields (KIP-482), later ones name topics by
 * their ids (KIP-516). */
struct form {
    int version;
    bool is_flexible, has_ids;
};

static inline struct form form_of(int api, int version) {
    bool is_flexible = version >= (api == API_PRODUCE ? 9 : api == API_FETCH ? 12 : 0);
    return (struct form){version, is_flexible, (api == API_PRODUCE || api == API_FETCH) && version >= 13};
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void *allocate(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory) die("out of memory: %zu bytes", size);
    return memory;
}

/* Writing: each function returns where the next byte goes. */

static inline uint8_t *put8(uint8_t *at, uint8_t value) {
    *at = value;
    return at + 1;
}

static inline uint8_t *put16(uint8_t *at, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(at, &value, 2);
    return at + 2;
}

static inline uint8_t *put32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
    return at + 4;
}

static inline uint8_t *put64(uint8_t *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
    return at + 8;
}

static inline uint8_t *put_unsigned(uint8_t *at, uint64_t value) {
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    return put8(at, (uint8_t)value);
}

static inline uint8_t *put_varint(uint8_t *at, int64_t value) {
    return put_unsigned(at, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static inline uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

/* The number of elements of an array, or of bytes. */
static inline uint8_t *put_count(uint8_t *at, struct form form, uint64_t count) {
    return form.is_flexible ? put_unsigned(at, count + 1) : put32(at, (uint32_t)count);
}

static inline uint8_t *put_name(uint8_t *at, struct form form, const void *text, size_t size) {
    at = form.is_flexible ? put_unsigned(at, size + 1) : put16(at, (uint16_t)size);
    return put_bytes(at, text, size);
}

static inline uint8_t *put_tags(uint8_t *at, struct form form) { return form.is_flexible ? put8(at, 0) : at; }

/* Reading: past the end everything is zero, and `bad` says so. */

struct reader {
    const uint8_t *at, *end;
    bool bad;
};

static inline const uint8_t *take(struct reader *from, uint64_t size) {
    static const uint8_t zeros[16];
    if ((uint64_t)(from->end - from->at) < size) {
        from->bad = true;
        from->at = from->end;
        return zeros;
    }
    from->at += size;
    return from->at - size;
}

static inline uint16_t load16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, 2);
    return __builtin_bswap16(value);
}

static inline uint32_t load32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline uint8_t get8(struct reader *from) { return *take(from, 1); }
static inline uint16_t get16(struct reader *from) { return load16(take(from, 2)); }
static inline uint32_t get32(struct reader *from) { return load32(take(from, 4)); }
static inline uint64_t get64(struct reader *from) { return load64(take(from, 8)); }

static inline uint64_t get_unsigned(struct reader *from) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get8(from);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    from->bad = true;
    return 0;
}

static inline int64_t get_varint(struct reader *from) {
    uint64_t value = get_unsigned(from);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* The number of elements of an array, or of bytes; a null one has none. */
static inline uint64_t get_count(struct reader *from, struct form form) {
    uint64_t count = form.is_flexible ? get_unsigned(from) : (uint64_t)((int64_t)(int32_t)get32(from) + 1);
    return count ? count - 1 : 0;
}

/* The number of bytes of a text; a null one has none. */
static inline uint64_t get_name_size(struct reader *from, struct form form) {
    uint64_t size = form.is_flexible ? get_unsigned(from) : (uint64_t)((int64_t)(int16_t)get16(from) + 1);
    return size ? size - 1 : 0;
}

static inline void skip_name(struct reader *from, struct form form) { take(from, get_name_size(from, form)); }

/* The bytes that name a topic: its name or its id. */
static inline const uint8_t *get_topic(struct reader *from, struct form form, uint64_t *size) {
    *size = form.has_ids ? LENGTH_OF_ID : get_name_size(from, form);
    return take(from, *size);
}

static inline void skip_tags(struct reader *from, struct form form) {
    if (!form.is_flexible) return;
    for (uint64_t count = get_unsigned(from); count && !from->bad; count--) {
        get_unsigned(from);
        take(from, get_unsigned(from));
    }
}

#endif
