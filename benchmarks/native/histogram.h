/* Times in nanoseconds, counted in buckets that are less than 1 % wide. */

#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

/* Up to 2^42 ns, over an hour: a stall of minutes is still told as it was. */
enum { FINE_BITS = 7, FINE = 1 << FINE_BITS, TIME_BITS = 42, BUCKETS = (TIME_BITS - FINE_BITS + 1) * FINE };

struct histogram {
    uint64_t total, max, sum;
    uint32_t counts[BUCKETS];
};

static inline unsigned bucket_of(uint64_t ns) {
    if (ns >> TIME_BITS) return BUCKETS - 1;
    if (ns < FINE) return (unsigned)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - FINE_BITS;
    return (shift + 1) * FINE + (unsigned)(ns >> shift) - FINE;
}

/* The smallest time that no longer belongs to the bucket. */
static inline uint64_t bucket_end(unsigned bucket) {
    if (bucket < FINE) return bucket + 1;
    unsigned shift = bucket / FINE - 1;
    return (uint64_t)(bucket % FINE + FINE + 1) << shift;
}

static inline void record(struct histogram *into, uint64_t ns) {
    into->counts[bucket_of(ns)]++;
    into->total++;
    into->sum += ns;
    if (ns > into->max) into->max = ns;
}

static inline double percentile_us(const struct histogram *of, double part) {
    uint64_t wanted = (uint64_t)(part * (double)of->total), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += of->counts[bucket];
        if (seen > wanted) return (double)(bucket_end(bucket) < of->max ? bucket_end(bucket) : of->max) / 1e3;
    }
    return (double)of->max / 1e3;
}

/* {"count": …, "p50_us": …, …}; with the buckets as pairs of their end and how many are in them. */
static inline void print_histogram(const struct histogram *of, int with_buckets) {
    printf("{\"count\": %" PRIu64 ", \"mean_us\": %.1f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f",
           of->total, of->total ? (double)of->sum / (double)of->total / 1e3 : 0.0, percentile_us(of, 0.5),
           percentile_us(of, 0.9), percentile_us(of, 0.99), percentile_us(of, 0.999), (double)of->max / 1e3);
    if (with_buckets) {
        printf(", \"buckets\": [");
        const char *between = "";
        for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
            if (of->counts[bucket]) {
                printf("%s[%.3f, %" PRIu32 "]", between, (double)bucket_end(bucket) / 1e3, of->counts[bucket]);
                between = ", ";
            }
        printf("]");
    }
    printf("}");
}

#endif
