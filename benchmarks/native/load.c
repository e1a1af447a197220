/* A load generator for whatever speaks Kafka's protocol, and for some that do not: requests are made beforehand,
 * one thread, no dependencies.
 *
 *     load produce --port 9092 --topic t --connections 4 --in-flight 5 --batch-bytes 100000 --seconds 3
 *     load fetch --port 9092 --topic t --max-bytes 1000000
 *     load e2e --port 9092 --topic t --rate 1000 --seconds 10 --linger-ms 5
 *     load seek --port 9092 --topic t --requests 1000 --max-bytes 100000
 *
 * The result is one JSON object on standard output. The topics must be there. */

#include <getopt.h>

#include "peer.h"

static const char USAGE[] =
    "usage: load produce|fetch|e2e|seek --port PORT --topic NAME [options]\n"
    "  --host ADDRESS         IPv4 address (127.0.0.1)\n"
    "  --topic NAME           may be given several times\n"
    "  --partitions N         of each topic, used in turn (1)\n"
    "  --connections N        (1)\n"
    "  --in-flight N          requests on each connection (5; e2e 1000)\n"
    "  --acks 0|1|-1          (1)\n"
    "  --produce-version N    3 to 13 (13)\n"
    "  --fetch-version N      4 to 18 (18)\n"
    "  --message-bytes N      size of a message's value (1000)\n"
    "  --batch-bytes N        a batch is at most so large, and at least one message (one; e2e with a linger 100000)\n"
    "  --seconds S            how long (produce and fetch: until --requests or the end; e2e 10)\n"
    "  --requests N           produce, seek: how many in all\n"
    "  --max-bytes N          fetch, e2e: of a response (1000000)\n"
    "  --loops N              fetch: how often everything is read (1)\n"
    "  --newest N             fetch: only so many messages of each partition, the last ones (all)\n"
    "  --from-ms T --to-ms T  seek: look for times between these instead of reading at random offsets\n"
    "  --rate R               e2e: messages a second (1000)\n"
    "  --schedule 1x10,10x60  e2e: times the rate, for so many seconds, instead of --seconds\n"
    "  --linger-ms L          e2e: gather messages for so long; without it each is a request\n"
    "  --warmup-seconds S     e2e: the first messages are not counted (0)\n"
    "  --drain-seconds S      e2e: wait for the last messages at most so long (30)\n"
    "  --consumers N          e2e: connections that read (1)\n"
    "  --interval-ms N        e2e: how fine the course of latency is told (1000)\n"
    "  --spin                 never sleep: for a processor of its own\n"
    "  --buckets              tell whole histograms\n"
    "  --protocol NAME        kafka, redis, nats or rabbitmq: one topic, a steady rate, no partitions (kafka)\n"
    "  --messages N           fetch of others than Kafka: how many there are\n";

enum {
    HOST = 256, PORT, TOPIC, PARTITIONS, CONNECTIONS, IN_FLIGHT, ACKS, MESSAGE_BYTES, BATCH_BYTES, SECONDS, REQUESTS,
    MAX_BYTES, LOOPS, RATE, SCHEDULE, LINGER_MS, WARMUP_SECONDS, DRAIN_SECONDS, CONSUMERS, INTERVAL_MS, SPIN,
    BUCKETS_OF, PROTOCOL, MESSAGES, NEWEST, FROM_MS, TO_MS, PRODUCE_VERSION, FETCH_VERSION
};

static const struct option LONG_OPTIONS[] = {
    {"host", 1, 0, HOST},
    {"port", 1, 0, PORT},
    {"topic", 1, 0, TOPIC},
    {"partitions", 1, 0, PARTITIONS},
    {"connections", 1, 0, CONNECTIONS},
    {"in-flight", 1, 0, IN_FLIGHT},
    {"acks", 1, 0, ACKS},
    {"message-bytes", 1, 0, MESSAGE_BYTES},
    {"batch-bytes", 1, 0, BATCH_BYTES},
    {"seconds", 1, 0, SECONDS},
    {"requests", 1, 0, REQUESTS},
    {"max-bytes", 1, 0, MAX_BYTES},
    {"loops", 1, 0, LOOPS},
    {"rate", 1, 0, RATE},
    {"schedule", 1, 0, SCHEDULE},
    {"linger-ms", 1, 0, LINGER_MS},
    {"warmup-seconds", 1, 0, WARMUP_SECONDS},
    {"drain-seconds", 1, 0, DRAIN_SECONDS},
    {"consumers", 1, 0, CONSUMERS},
    {"interval-ms", 1, 0, INTERVAL_MS},
    {"spin", 0, 0, SPIN},
    {"buckets", 0, 0, BUCKETS_OF},
    {"protocol", 1, 0, PROTOCOL},
    {"messages", 1, 0, MESSAGES},
    {"newest", 1, 0, NEWEST},
    {"from-ms", 1, 0, FROM_MS},
    {"to-ms", 1, 0, TO_MS},
    {"produce-version", 1, 0, PRODUCE_VERSION},
    {"fetch-version", 1, 0, FETCH_VERSION},
    {0, 0, 0, 0},
};

static double number(const char *text, double least) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || value < least) die("%s is no number from %g on", text, least);
    return value;
}

static int version(const char *text, int first, int last) {
    int value = (int)number(text, first);
    if (value > last) die("version %d is not spoken: the last is %d", value, last);
    return value;
}

static struct options parse(int count, char **arguments) {
    struct options options = {.host = "127.0.0.1", .partitions = 1, .connections = 1, .acks = 1, .message_bytes = 1000,
                              .max_bytes = 1000000, .loops = 1, .rate = 1000, .drain_seconds = 30, .consumers = 1,
                              .interval_ms = 1000, .produce_version = PRODUCE_LAST, .fetch_version = FETCH_LAST};
    int option;
    while ((option = getopt_long(count, arguments, "", LONG_OPTIONS, NULL)) != -1) switch (option) {
            case HOST: options.host = optarg; break;
            case PORT: options.port = (int)number(optarg, 1); break;
            case TOPIC:
                if (options.topic_count == MAX_TOPICS) die("at most %d topics", MAX_TOPICS);
                if (strlen(optarg) >= LENGTH_OF_NAME) die("a name of %zu characters is too long", strlen(optarg));
                options.topics[options.topic_count++] = optarg;
                break;
            case PARTITIONS: options.partitions = (int)number(optarg, 1); break;
            case CONNECTIONS: options.connections = (int)number(optarg, 1); break;
            case IN_FLIGHT: options.in_flight = (int)number(optarg, 1); break;
            case ACKS: options.acks = (int)number(optarg, -1); break;
            case MESSAGE_BYTES: options.message_bytes = (size_t)number(optarg, 0); break;
            case BATCH_BYTES: options.batch_bytes = (size_t)number(optarg, 0); break;
            case SECONDS: options.seconds = number(optarg, 0); break;
            case REQUESTS: options.requests = (uint64_t)number(optarg, 1); break;
            case MAX_BYTES: options.max_bytes = (uint32_t)number(optarg, 1); break;
            case LOOPS: options.loops = (int)number(optarg, 1); break;
            case RATE: options.rate = number(optarg, 1); break;
            case SCHEDULE: options.schedule = optarg; break;
            case LINGER_MS: options.linger_ms = number(optarg, 0); break;
            case WARMUP_SECONDS: options.warmup_seconds = number(optarg, 0); break;
            case DRAIN_SECONDS: options.drain_seconds = number(optarg, 0); break;
            case CONSUMERS: options.consumers = (int)number(optarg, 1); break;
            case INTERVAL_MS: options.interval_ms = (int)number(optarg, 1); break;
            case SPIN: options.spin = true; break;
            case BUCKETS_OF: options.buckets = true; break;
            case PROTOCOL: options.protocol = strcmp(optarg, "kafka") ? optarg : NULL; break;
            case MESSAGES: options.messages = (uint64_t)number(optarg, 1); break;
            case NEWEST: options.newest = (uint64_t)number(optarg, 1); break;
            case FROM_MS: options.from_ms = (uint64_t)number(optarg, 0); break;
            case TO_MS: options.to_ms = (uint64_t)number(optarg, 0); break;
            case PRODUCE_VERSION: options.produce_version = version(optarg, PRODUCE_FIRST, PRODUCE_LAST); break;
            case FETCH_VERSION: options.fetch_version = version(optarg, FETCH_FIRST, FETCH_LAST); break;
            default: fputs(USAGE, stderr), exit(2);
        }
    if (optind < count || !options.port || !options.topic_count) fputs(USAGE, stderr), exit(2);
    return options;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    bool is_produce = !strcmp(mode, "produce"), is_fetch = !strcmp(mode, "fetch"), is_e2e = !strcmp(mode, "e2e");
    bool is_seek = !strcmp(mode, "seek");
    if (!is_produce && !is_fetch && !is_e2e && !is_seek) fputs(USAGE, stderr), exit(2);
    struct options options = parse(count - 1, arguments + 1);
    if (!options.in_flight) options.in_flight = is_e2e ? 1000 : 5;
    if (!options.protocol) find_topic_ids(&options);
    if (is_produce) {
        if (!options.seconds && !options.requests) die("produce needs --seconds or --requests");
        options.protocol ? run_peer_produce(&options) : run_produce(&options);
    } else if (is_fetch) {
        options.protocol ? run_peer_fetch(&options) : run_fetch(&options);
    } else if (is_seek) {
        if (!options.requests) die("seek needs --requests");
        run_seek(&options);
    } else {
        if (!options.seconds) options.seconds = 10;
        if (!options.batch_bytes) options.batch_bytes = 100000;
        options.protocol ? run_peer_end_to_end(&options) : run_end_to_end(&options);
    }
    return 0;
}
