/* CRC32C by the processor's instruction where there is one, by tables elsewhere. */

#include "crc32c.h"

#include <string.h>

static uint32_t crc_table[8][256];
/* What a checksum becomes when CRC_STRIDE zero bytes follow, by each of its four bytes. */
static uint32_t crc_shift[4][256];
enum { CRC_STRIDE = 512 };

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t size) {
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++) crc ^= crc_table[7 - byte][(word >> (8 * byte)) & 0xff];
    }
    while (size--) crc = crc_table[0][(crc ^ *at++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static inline uint32_t crc_shifted(uint32_t crc) {
    return crc_shift[0][crc & 0xff] ^ crc_shift[1][(crc >> 8) & 0xff] ^ crc_shift[2][(crc >> 16) & 0xff] ^
           crc_shift[3][crc >> 24];
}

/* The instruction takes three cycles and can begin in each of them, so three stretches go side by side. */
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t start, const uint8_t *at, size_t size) {
    uint64_t crc = start;
    for (; size >= 3 * CRC_STRIDE; at += 3 * CRC_STRIDE, size -= 3 * CRC_STRIDE) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < CRC_STRIDE; i += 8) {
            uint64_t words[3];
            memcpy(&words[0], at + i, 8);
            memcpy(&words[1], at + CRC_STRIDE + i, 8);
            memcpy(&words[2], at + 2 * CRC_STRIDE + i, 8);
            crc = _mm_crc32_u64(crc, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        crc = crc_shifted(crc_shifted((uint32_t)crc) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    while (size--) crc = _mm_crc32_u8((uint32_t)crc, *at++);
    return (uint32_t)crc;
}
#endif

__attribute__((constructor)) static void prepare(void) {
    static const uint8_t zeros[CRC_STRIDE];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int further = 1; further < 8; further++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[further - 1][byte];
            crc_table[further][byte] = crc_table[0][crc & 0xff] ^ (crc >> 8);
        }
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++)
            crc_shift[place][byte] = crc_by_table(byte << (8 * place), zeros, CRC_STRIDE);
}

uint32_t crc32c(const void *bytes, size_t size) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_by_instruction(~0u, bytes, size);
#endif
    return ~crc_by_table(~0u, bytes, size);
}
