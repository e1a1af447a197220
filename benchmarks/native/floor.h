/* The parts of the floor: logs that are appended to and flushed, and connections whose replies go out in order. */

#ifndef FLOOR_H
#define FLOOR_H

#include <sys/types.h>

#include "wire.h"

/* Logs (floor_log.c) */

enum { GATHERED = 64 };

struct place {
    uint64_t offset, position;
};

struct log {
    char topic[LENGTH_OF_NAME];
    uint32_t index;
    int fd;
    /* Where each batch begins, and behind them where the next one will. */
    struct place *places;
    size_t count, capacity;
    /* How many batches readers see, and how many they will see after the flush that is under way. */
    size_t visible, flushing;
    bool is_dirty;
    /* Batches that lie in the receive buffer and are written with one call. */
    struct {
        const uint8_t *at;
        size_t size;
    } gathered[GATHERED];
    int gathered_count;
};

/* A stretch of a log's file, from the batch with an offset on. */
struct range {
    int fd;
    off_t begin;
    size_t size;
};

void open_logs(const char *folder, bool flushes, int rest_ms);
/* The log of a partition, which is made if there is none. */
struct log *find_log(const uint8_t *topic, uint64_t topic_size, uint32_t index);
/* Stamps the batch and remembers it for write_gathered; -1 if there is something wrong with it. */
int64_t append(struct log *log, uint8_t *batch, size_t size);
void write_gathered(void);
uint64_t end_offset(const struct log *log);
/* Batches from the one with the offset on, as many as fit, and at least one; none at the end. */
struct range find_range(const struct log *log, uint64_t offset, uint64_t max_bytes);

/* Everything written so far is flushed once this many rounds are over. */
uint64_t round_to_wait_for(void);
uint64_t rounds_over(void);
/* Becomes readable when a round is over; the loop then calls end_round, and begin_round in every turn. */
int round_ended_fd(void);
void end_round(void);
/* Begins a round if there is something to flush. The result is when to call it again, in ns of the clock; 0: no need. */
uint64_t begin_round(bool somebody_waits);

/* Connections (floor.c) */

enum { MAX_PARTS = 1024 };

struct output;

struct connection {
    int fd;
    uint32_t number;
    uint8_t *tail;
    size_t tail_size, tail_capacity;
    struct output *first, *last;
    bool wants_to_send;
    /* The one fetch that waits for data, as it came; its answer is due by then at the latest. */
    uint8_t *waiting;
    size_t waiting_size, waiting_capacity;
    uint64_t waits_until_ns;
};

/* Room for a reply that may go out when so many rounds are over; commit with how much was used. */
uint8_t *reserve(struct connection *connection, size_t size, uint64_t round);
void commit(struct connection *connection, size_t size);
void send_range(struct connection *connection, struct range range);

/* Requests (floor_apis.c) */

/* `is_late` answers a fetch even if there is nothing to tell. False if the fetch has to wait. */
bool handle(struct connection *connection, uint8_t *request, size_t size, bool is_late);

#endif
