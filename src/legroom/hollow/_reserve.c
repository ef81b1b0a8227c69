/* Large requests of a rehearsed program that are served without being committed; loaded by LD_PRELOAD.

A rollout of 105 GiB is no problem on a laptop as long as it is not written. The kernel refuses such a request by default
(overcommit), so requests of 32 MiB and more, which glibc maps one by one too, are mapped with MAP_NORESERVE; so are
requests of 4 MiB and more for zeros, since an array of zeros is filled later. Each gets a mapping of its own, with a page
behind it that cannot be touched: the kernel would join neighbours otherwise, and /proc/PID/smaps could not tell them
apart. LEGROOM_RESERVE_LIMIT, in bytes, refuses a larger request as a machine with so much memory would; each refusal is a
line of the file `refused` in the rehearsal's folder, and Python is told of it with address 0.

Everything else goes to glibc's own functions, which it exports under these names. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAST ((size_t)32 << 20)
#define LEAST_ZEROS ((size_t)4 << 20)
#define PAGE ((size_t)4096)
#define MOST 4096

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static struct { void *at; size_t size; } regions[MOST];
static size_t used;
static size_t limit;
static char refusals[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*told)(void *, size_t);
static void *(*python_thread)(void);

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("LEGROOM_RESERVE_LIMIT");
    limit = given ? (size_t)strtoull(given, NULL, 10) : 0;
    const char *folder = getenv("LEGROOM_REHEARSAL_FOLDER");
    int length = folder ? snprintf(refusals, sizeof refusals, "%s/refused", folder) : 0;
    if (length >= (int)sizeof refusals) refusals[0] = 0;
}

/* Python sets who is told of a request. NumPy and torch ask without holding the interpreter, and take it again right
after; so does the callback. A thread that Python does not know is not told of: who holds the interpreter may wait for
it. */
__attribute__((visibility("default"))) void legroom_tell(void (*callback)(void *, size_t)) {
    python_thread = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    told = callback;
}

static int refused(size_t size) {
    if (!limit || size <= limit) return 0;
    char line[64];
    int length = snprintf(line, sizeof line, "%ld %zu\n", (long)getpid(), size);
    int file = refusals[0] ? open(refusals, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file >= 0) {
        ssize_t written = write(file, line, (size_t)length);
        (void)written;
        close(file);
    }
    if (told && python_thread && python_thread()) told(NULL, size);
    return 1;
}

static void *reserve(size_t size) {
    if (refused(size)) { errno = ENOMEM; return NULL; }
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    if (whole < size) { errno = ENOMEM; return NULL; }
    char *at = (char *)syscall(SYS_mmap, NULL, whole + PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == (char *)MAP_FAILED) { errno = ENOMEM; return NULL; }
    mprotect(at + whole, PAGE, PROT_NONE);
    pthread_mutex_lock(&lock);
    int fits = used < MOST;
    if (fits) { regions[used].at = at; regions[used].size = size; used++; }
    pthread_mutex_unlock(&lock);
    if (!fits) { munmap(at, whole + PAGE); return __libc_memalign(PAGE, size); }
    if (told && python_thread && python_thread()) told(at, size);
    return at;
}

/* Return the size of a region, 0 where the address is none of ours; `forget` takes it off the list. */
static size_t known(const void *at, int forget) {
    size_t size = 0;
    if (((uintptr_t)at & (PAGE - 1)) || !used) return 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < used; i++) {
        if (regions[i].at == at) {
            size = regions[i].size;
            if (forget) regions[i] = regions[--used];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return size;
}

static void give_back(void *at, size_t size) {
    munmap(at, (size + PAGE - 1) / PAGE * PAGE + PAGE);
}

void *malloc(size_t size) {
    return size >= LEAST ? reserve(size) : __libc_malloc(size);
}

void *calloc(size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) { errno = ENOMEM; return NULL; }
    return size >= LEAST_ZEROS ? reserve(size) : __libc_calloc(count, each);
}

void free(void *at) {
    if (!at) return;
    size_t size = known(at, 1);
    if (size) {
        int before = errno;
        give_back(at, size);
        errno = before;
    } else {
        __libc_free(at);
    }
}

void *realloc(void *at, size_t size) {
    size_t before = at ? known(at, 0) : 0;
    if (!at) return malloc(size);
    if (!before) {
        if (refused(size)) { errno = ENOMEM; return NULL; }
        return __libc_realloc(at, size);
    }
    void *to = malloc(size ? size : 1);
    if (!to) return NULL;
    memcpy(to, at, before < size ? before : size);
    free(at);
    return to;
}

int posix_memalign(void **to, size_t alignment, size_t size) {
    void *at = size >= LEAST && alignment <= PAGE ? reserve(size) : refused(size) ? NULL : __libc_memalign(alignment, size);
    if (!at && size) return ENOMEM;
    *to = at;
    return 0;
}

void *memalign(size_t alignment, size_t size) {
    return size >= LEAST && alignment <= PAGE ? reserve(size) : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

size_t malloc_usable_size(void *at) {
    static size_t (*next)(void *);
    size_t size = at ? known(at, 0) : 0;
    if (size || !at) return size;
    if (!next) next = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    return next ? next(at) : 0;
}

void *mmap(void *wanted, size_t size, int protection, int flags, int file, off_t offset) {
    if (size >= LEAST && (flags & MAP_ANONYMOUS) && (flags & MAP_PRIVATE)) {
        if (limit && size > limit && (protection & PROT_WRITE)) { errno = ENOMEM; return MAP_FAILED; }
        flags |= MAP_NORESERVE;
    }
    return (void *)syscall(SYS_mmap, wanted, size, protection, flags, file, offset);
}
