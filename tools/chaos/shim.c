/* Stands between a broker and its disk, and between a broker and its clock: a library for LD_PRELOAD.

   CHAOS_SHIM is a file of eight numbers that the tool writes and every process with this library maps, and
   CHAOS_SHIM_FOLDER the folder that counts as the disk. While all of the first four are zero, calls pass as they are. */

#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* tools/chaos/shim.py has the same order. */
struct numbers {
    int64_t is_full;         /* no file of the disk may grow */
    int64_t failing_syncs;   /* of the next syncs fail */
    int64_t sync_delay_ms;   /* each sync takes longer by that */
    int64_t clock_offset_ms; /* the wall clock is wrong by that */
    int64_t refused_writes;  /* what has been done, from here on */
    int64_t failed_syncs;
    int64_t delayed_syncs;
    int64_t moved_clock_reads;
};

static struct numbers nothing;
static struct numbers *numbers = &nothing;
static char folder[PATH_MAX];
static size_t folder_length;

__attribute__((constructor)) static void attach(void)
{
    const char *control = getenv("CHAOS_SHIM"), *disk = getenv("CHAOS_SHIM_FOLDER");
    if (control == NULL || disk == NULL)
        return;
    int fd = open(control, O_RDWR | O_CLOEXEC);
    void *mapped = MAP_FAILED;
    if (fd >= 0) {
        mapped = mmap(NULL, sizeof *numbers, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (mapped == MAP_FAILED || strlen(disk) >= sizeof folder) {
        fprintf(stderr, "shim: %s cannot be used\n", control);
        _exit(99);
    }
    folder_length = strlen(disk);
    memcpy(folder, disk, folder_length + 1);
    numbers = mapped;
}

static int is_path_on_disk(const char *path)
{
    return strncmp(path, folder, folder_length) == 0 && (path[folder_length] == '/' || path[folder_length] == '\0');
}

static int is_on_disk(int fd)
{
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return is_path_on_disk(path);
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (real == NULL)                                                                                                  \
        *(void **)&real = dlsym(RTLD_NEXT, name)

/* How many bytes may be written: a file has the rest of its last block for itself, and nothing more. */
static int64_t room(int fd, int64_t size, int64_t position)
{
    struct stat status;
    if (!numbers->is_full || !is_on_disk(fd) || fstat(fd, &status) != 0)
        return size;
    int64_t end = (status.st_size + 4095) / 4096 * 4096;
    if (position + size <= end)
        return size;
    if (position < end)
        return end - position;
    __atomic_add_fetch(&numbers->refused_writes, 1, __ATOMIC_RELAXED);
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t position)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    int64_t allowed = room(fd, (int64_t)size, position);
    return allowed < 0 ? -1 : real(fd, data, (size_t)allowed, position);
}

static int64_t bytes_of(const struct iovec *parts, int count)
{
    int64_t size = 0;
    for (int i = 0; i < count; i++)
        size += (int64_t)parts[i].iov_len;
    return size;
}

/* What a full disk still takes of several parts: a part of the first. */
static ssize_t write_first(int fd, const struct iovec *parts, int64_t allowed, off64_t position)
{
    size_t size = parts[0].iov_len < (size_t)allowed ? parts[0].iov_len : (size_t)allowed;
    return pwrite64(fd, parts[0].iov_base, size, position);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t position)
{
    REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off64_t);
    int64_t size = bytes_of(parts, count), allowed = room(fd, size, position);
    if (allowed < size)
        return allowed < 0 ? -1 : write_first(fd, parts, allowed, position);
    return real(fd, parts, count, position);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t position, int flags)
{
    REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int);
    int64_t size = bytes_of(parts, count), allowed = room(fd, size, position);
    if (allowed < size)
        return allowed < 0 ? -1 : write_first(fd, parts, allowed, position);
    return real(fd, parts, count, position, flags);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t position)
{
    return pwrite64(fd, data, size, position);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position)
{
    return pwritev64(fd, parts, count, position);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags)
{
    return pwritev64v2(fd, parts, count, position, flags);
}

/* 0 if the sync may go on. */
static int hold_sync(int fd)
{
    int64_t delay_ms = numbers->sync_delay_ms;
    if ((delay_ms == 0 && numbers->failing_syncs == 0) || !is_on_disk(fd))
        return 0;
    if (delay_ms > 0) {
        struct timespec wait = {delay_ms / 1000, delay_ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
        __atomic_add_fetch(&numbers->delayed_syncs, 1, __ATOMIC_RELAXED);
    }
    int64_t left = __atomic_load_n(&numbers->failing_syncs, __ATOMIC_RELAXED);
    while (left > 0)
        if (__atomic_compare_exchange_n(&numbers->failing_syncs, &left, left - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            __atomic_add_fetch(&numbers->failed_syncs, 1, __ATOMIC_RELAXED);
            errno = EIO;
            return -1;
        }
    return 0;
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return hold_sync(fd) ? -1 : real(fd);
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return hold_sync(fd) ? -1 : real(fd);
}

int syncfs(int fd)
{
    REAL(int, "syncfs", int);
    return hold_sync(fd) ? -1 : real(fd);
}

int statvfs64(const char *path, struct statvfs64 *status)
{
    REAL(int, "statvfs64", const char *, struct statvfs64 *);
    int code = real(path, status);
    if (code == 0 && numbers->is_full && is_path_on_disk(path))
        status->f_bfree = status->f_bavail = 0;
    return code;
}

int fstatvfs64(int fd, struct statvfs64 *status)
{
    REAL(int, "fstatvfs64", int, struct statvfs64 *);
    int code = real(fd, status);
    if (code == 0 && numbers->is_full && is_on_disk(fd))
        status->f_bfree = status->f_bavail = 0;
    return code;
}

static int64_t clock_offset_ms(void)
{
    int64_t offset_ms = numbers->clock_offset_ms;
    if (offset_ms != 0)
        __atomic_add_fetch(&numbers->moved_clock_reads, 1, __ATOMIC_RELAXED);
    return offset_ms;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int code = real(clock, now);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        /* Whole seconds: the rest is not looked at. */
        now->tv_sec += clock_offset_ms() / 1000;
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    REAL(int, "gettimeofday", struct timeval *, void *);
    int code = real(now, zone);
    if (code == 0)
        now->tv_sec += clock_offset_ms() / 1000;
    return code;
}

time_t time(time_t *place)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place != NULL)
        *place = now.tv_sec;
    return now.tv_sec;
}
