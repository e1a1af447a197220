/* Counts the bytes that a process has from malloc, now and at most: preloaded, so that Python (with PYTHONMALLOC=malloc)
 * and every library in it are counted alike. */

#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *old);

static long now, most;

/* What was allocated since the last reset, beyond what there was then, at its highest. */
void heap_reset(void) { __atomic_store_n(&most, __atomic_load_n(&now, __ATOMIC_RELAXED), __ATOMIC_RELAXED); }
long heap_now(void) { return __atomic_load_n(&now, __ATOMIC_RELAXED); }
long heap_most(void) { return __atomic_load_n(&most, __ATOMIC_RELAXED); }

static void changed(long by) {
    long size = __atomic_add_fetch(&now, by, __ATOMIC_RELAXED);
    long seen = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (size > seen && !__atomic_compare_exchange_n(&most, &seen, size, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void *taken(void *block) {
    if (block != NULL) {
        changed((long)malloc_usable_size(block));
    }
    return block;
}

void *malloc(size_t size) { return taken(__libc_malloc(size)); }

void *calloc(size_t count, size_t size) { return taken(__libc_calloc(count, size)); }

void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }

void *aligned_alloc(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = taken(__libc_memalign(alignment, size));
    return *block == NULL ? ENOMEM : 0;
}

void *realloc(void *old, size_t size) {
    long before = old == NULL ? 0 : (long)malloc_usable_size(old);
    void *block = __libc_realloc(old, size);
    if (block != NULL) {
        changed((long)malloc_usable_size(block) - before);
    } else if (size == 0) {
        changed(-before);
    }
    return block;
}

void free(void *old) {
    if (old != NULL) {
        changed(-(long)malloc_usable_size(old));
        __libc_free(old);
    }
}
