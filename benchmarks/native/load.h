/* What the modes of the load generator share: options, connections with requests in flight, and requests. */

#ifndef LOAD_H
#define LOAD_H

#include <sys/uio.h>

#include "histogram.h"
#include "wire.h"

enum { MAX_TOPICS = 1024 };

struct options {
    const char *host;
    int port;
    const char *topics[MAX_TOPICS];
    uint8_t topic_ids[MAX_TOPICS][LENGTH_OF_ID];
    int topic_count;
    int produce_version, fetch_version;
    int partitions;
    int connections;
    int in_flight;
    int acks;
    size_t batch_bytes;
    size_t message_bytes;
    double seconds;
    uint64_t requests;
    uint32_t max_bytes;
    int loops;
    double rate;
    const char *schedule;
    double linger_ms;
    double warmup_seconds;
    double drain_seconds;
    int consumers;
    int interval_ms;
    bool spin;
    bool buckets;
    /* Of systems that speak something else than Kafka's protocol; otherwise NULL. */
    const char *protocol;
    uint64_t messages;
    uint64_t newest;
    uint64_t from_ms, to_ms;
};

void run_produce(const struct options *options);
void run_fetch(const struct options *options);
void run_end_to_end(const struct options *options);
void run_seek(const struct options *options);

/* A partition of one of the topics: partitions are numbered through, topic by topic in turn. */
static inline int partition_count(const struct options *options) { return options->topic_count * options->partitions; }
static inline const char *topic_of(const struct options *options, int number) {
    return options->topics[number % options->topic_count];
}
static inline int index_of(const struct options *options, int number) { return number / options->topic_count; }

/* A request: its head, then `body`, which may be shared, then `tail` zero bytes. */
struct request {
    uint8_t *head;
    size_t head_size, head_capacity;
    const uint8_t *body;
    size_t body_size, tail;
    uint8_t *own_body;
    size_t own_body_capacity;
    uint32_t correlation;
    struct form form;
    uint64_t begun_ns;
    uint64_t mark, messages;
    int partition;
};

/* Requests of a connection, in a ring: done <= sent <= queued, and at most `in_flight` between done and queued. */
struct connection {
    int fd, number;
    struct request *ring;
    uint64_t done, sent, queued;
    uint64_t in_flight;
    size_t sent_bytes;
    bool wants_to_send;
    uint8_t *in;
    size_t in_size, in_capacity;
    struct loop *loop;
};

typedef void (*on_response)(struct connection *connection, struct request *request, struct reader *body);

/* Connections that are driven together. */
struct loop {
    struct connection *connections;
    int count, epoll;
    /* Called for every response, in the order of the requests. */
    on_response answered;
    /* Called when a connection may have room for more requests; may be NULL. */
    void (*refill)(struct connection *connection);
    /* Never sleep: for a processor of our own, where waking up would be measured too. */
    bool spin;
};

void open_loop(struct loop *loop, const struct options *options, int count, uint64_t in_flight);
void close_loop(struct loop *loop);
struct request *new_request(struct connection *connection, size_t head_capacity);
void send_requests(struct connection *connection);
/* Waits until something can be read or sent, or until that time of the clock, and does what can be done. */
void turn(struct loop *loop, uint64_t until_ns);
/* Goes on until nothing is in flight any more. */
void drain(struct loop *loop, double seconds);

static inline bool has_room(const struct connection *connection) {
    return connection->queued - connection->done < connection->in_flight;
}

static inline struct request *request_at(struct connection *connection, uint64_t number) {
    return &connection->ring[number % connection->in_flight];
}

/* Enough for the head of a request about one partition. */
enum { HEAD_BYTES = 512 };

void make_produce(struct request *request, const struct options *options, int partition, const uint8_t *batch,
                  size_t size);
/* The error code; `base_offset` is where the batch went. */
int read_produce(const struct request *request, struct reader *body, uint64_t *base_offset);

/* One partition of a Fetch response. */
struct fetched {
    int partition;
    int error;
    uint64_t high_watermark;
    struct reader records;
};

struct wanted {
    int partition;
    uint64_t offset;
};

void make_fetch(struct request *request, const struct options *options, const struct wanted *wanted, int count,
                uint32_t max_wait_ms);
/* Calls back for each partition of the response. */
void read_fetch(const struct options *options, const struct request *request, struct reader *body,
                void (*found)(struct fetched *part, void *context), void *context);

/* The first offset of that time or later; of LATEST the end of a partition, which its next message gets. */
#define LATEST UINT64_MAX
void make_list_offsets(struct request *request, const struct options *options, int partition, uint64_t timestamp);
uint64_t read_list_offsets(const struct request *request, struct reader *body);

/* Asks the broker for the end of every partition, over a connection of its own. */
void list_ends(const struct options *options, uint64_t *ends);

/* Asks for the ids of the topics, if the versions that are to be spoken need them. */
void find_topic_ids(struct options *options);

#endif
