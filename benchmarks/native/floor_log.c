/* Logs as files: batches appended in place, their offsets remembered in memory, flushed by a thread. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crc32c.h"
#include "floor.h"

enum { MAX_LOGS = 16384 };

static const char *folder;
static bool flushes;
static uint64_t rest_ns;
static struct log *logs[MAX_LOGS];
static int log_count;
/* With batches to write, with bytes to flush, and with bytes that are being flushed. */
static struct log *appended[MAX_LOGS], *dirty[MAX_LOGS], *flushing[MAX_LOGS];
static int appended_count, dirty_count, flushing_count;

struct log *find_log(const uint8_t *topic, uint64_t topic_size, uint32_t index) {
    if (topic_size >= LENGTH_OF_NAME) die("a topic's name is too long");
    for (int i = 0; i < log_count; i++)
        if (logs[i]->index == index && !memcmp(logs[i]->topic, topic, topic_size) && !logs[i]->topic[topic_size])
            return logs[i];
    if (log_count == MAX_LOGS) die("at most %d logs", MAX_LOGS);
    struct log *log = allocate(sizeof *log);
    char path[4096];
    memcpy(log->topic, topic, topic_size);
    log->index = index;
    snprintf(path, sizeof path, "%s/%s-%u.log", folder, log->topic, index);
    log->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (log->fd < 0) die("%s: %s", path, strerror(errno));
    log->capacity = 1024;
    log->places = allocate(log->capacity * sizeof *log->places);
    logs[log_count++] = log;
    return log;
}

uint64_t end_offset(const struct log *log) { return log->places[log->visible].offset; }

static void write_log(struct log *log) {
    struct iovec parts[GATHERED];
    size_t total = 0;
    for (int i = 0; i < log->gathered_count; i++) {
        parts[i] = (struct iovec){(void *)log->gathered[i].at, log->gathered[i].size};
        total += log->gathered[i].size;
    }
    off_t position = (off_t)(log->places[log->count].position - total);
    if (pwritev(log->fd, parts, log->gathered_count, position) != (ssize_t)total)
        die("writing %zu bytes: %s", total, strerror(errno));
    log->gathered_count = 0;
    if (!flushes)
        log->visible = log->count;
    else if (!log->is_dirty)
        dirty[dirty_count++] = log;
    log->is_dirty = true;
}

int64_t append(struct log *log, uint8_t *batch, size_t size) {
    if (size < BATCH_HEADER || batch[16] != 2 || load32(batch + 8) != size - 12) return -1;
    if (crc32c(batch + 21, size - 21) != load32(batch + 17)) return -1;
    struct place *place = &log->places[log->count];
    put64(batch, place->offset);
    put32(batch + 12, 0);
    if (log->count + 2 > log->capacity) {
        log->capacity *= 2;
        log->places = realloc(log->places, log->capacity * sizeof *log->places);
        if (!log->places) die("out of memory");
        place = &log->places[log->count];
    }
    place[1] = (struct place){place->offset + load32(batch + 57), place->position + size};
    log->count++;
    if (log->gathered_count == 0) appended[appended_count++] = log;
    log->gathered[log->gathered_count].at = batch;
    log->gathered[log->gathered_count++].size = size;
    if (log->gathered_count == GATHERED) write_gathered();
    return (int64_t)place->offset;
}

void write_gathered(void) {
    for (int i = 0; i < appended_count; i++) write_log(appended[i]);
    appended_count = 0;
}

/* The last place, among the visible batches and the end behind them, that is not behind the limit. */
static size_t last_within(const struct log *log, uint64_t limit, bool by_offset) {
    size_t low = 0, high = log->visible;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        uint64_t value = by_offset ? log->places[middle].offset : log->places[middle].position;
        if (value <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct range find_range(const struct log *log, uint64_t offset, uint64_t max_bytes) {
    size_t first = last_within(log, offset, true);
    if (first == log->visible) return (struct range){log->fd, 0, 0};
    uint64_t begin = log->places[first].position;
    size_t last = last_within(log, begin + max_bytes, false);
    if (last == first) last++;
    return (struct range){log->fd, (off_t)begin, (size_t)(log->places[last].position - begin)};
}

/* Rounds of flushing: the loop begins one, the thread syncs what was dirty by then, the loop learns that it is over. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static int ended_fd;
static uint64_t rounds, last_end_ns;
static bool is_begun, is_running;

static void *sync_rounds(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!is_begun) pthread_cond_wait(&begun, &mutex);
        is_begun = false;
        pthread_mutex_unlock(&mutex);
        for (int i = 0; i < flushing_count; i++)
            if (fdatasync(flushing[i]->fd)) die("fdatasync: %s", strerror(errno));
        pthread_mutex_lock(&mutex);
        if (eventfd_write(ended_fd, 1)) die("eventfd_write: %s", strerror(errno));
    }
    return NULL;
}

void open_logs(const char *path, bool is_flushed, int rest_ms) {
    folder = path;
    flushes = is_flushed;
    rest_ns = (uint64_t)rest_ms * 1000000u;
    ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_t thread;
    if (ended_fd < 0 || (flushes && pthread_create(&thread, NULL, sync_rounds, NULL))) die("no thread to flush with");
}

int round_ended_fd(void) { return ended_fd; }
uint64_t rounds_over(void) { return rounds; }
uint64_t round_to_wait_for(void) { return flushes ? rounds + (is_running ? 2 : 1) : 0; }

uint64_t begin_round(bool somebody_waits) {
    if (is_running || !dirty_count) return 0;
    if (!somebody_waits && now_ns() < last_end_ns + rest_ns) return last_end_ns + rest_ns;
    is_running = true;
    pthread_mutex_lock(&mutex);
    flushing_count = dirty_count;
    for (int i = 0; i < dirty_count; i++) {
        flushing[i] = dirty[i];
        flushing[i]->is_dirty = false;
        flushing[i]->flushing = flushing[i]->count;
    }
    dirty_count = 0;
    is_begun = true;
    pthread_cond_signal(&begun);
    pthread_mutex_unlock(&mutex);
    return 0;
}

void end_round(void) {
    eventfd_t ignored;
    eventfd_read(ended_fd, &ignored);
    is_running = false;
    rounds++;
    last_end_ns = now_ns();
    for (int i = 0; i < flushing_count; i++) flushing[i]->visible = flushing[i]->flushing;
}
