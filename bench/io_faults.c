/* Loaded with LD_PRELOAD: makes chosen file operations under some folders fail, and records those that succeed.
 *
 * IO_FAULTS_ROOTS  folders, separated by colons; all other paths are left alone
 * IO_FAULTS_STATE  a file of six ints, shared by all processes: armed, first call that fails, how many, errno, calls so
 *                  far, calls that failed
 * IO_FAULTS_LOG    a file that gets every successful change, for replaying a power loss: "op path-length path2-length
 *                  data-length offset\n" and then the bytes; written only while armed is 2
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ARMED, FIRST, SPAN, ERRNO, COUNT, FIRED };
static volatile int *state;
static const char *roots;
static int log_fd = -1;
#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("IO_FAULTS_STATE"), *log = getenv("IO_FAULTS_LOG");
    roots = getenv("IO_FAULTS_ROOTS");
    int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *at = REAL(mmap)(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) state = at;
        close(fd);
    }
    if (log) log_fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int ours(const char *path) {
    if (!state || !state[ARMED] || !roots || !path) return 0;
    for (const char *at = roots; *at;) {
        size_t n = strcspn(at, ":");
        if (n && !strncmp(path, at, n) && (path[n] == '/' || !path[n])) return 1;
        at += n + (at[n] == ':');
    }
    return 0;
}

static const char *of_fd(int fd, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    if (n <= 0) return NULL;
    into[n] = 0;
    return into;
}

static const char *at_fd(int fd, const char *path, char *into) {
    if (!path || path[0] == '/') return path;
    char folder[PATH_MAX];
    if (fd == AT_FDCWD ? !getcwd(folder, sizeof folder) : !of_fd(fd, folder)) return path;
    snprintf(into, PATH_MAX, "%.2000s/%.2000s", folder, path);
    return into;
}

/* Count a call on one of our paths; return whether it fails. */
static int fails(const char *path) {
    if (!ours(path)) return 0;
    int n = __sync_add_and_fetch(&state[COUNT], 1);
    if (n < state[FIRST] || n >= state[FIRST] + state[SPAN]) return 0;
    __sync_add_and_fetch(&state[FIRED], 1);
    errno = state[ERRNO];
    return 1;
}

static void record(char op, const char *one, const char *two, const void *data, size_t n, long long offset) {
    if (log_fd < 0 || !state || state[ARMED] != 2 || !(ours(one) || ours(two))) return;
    int before = errno;
    char head[128];
    int length = snprintf(head, sizeof head, "%c %zu %zu %zu %lld\n", op, one ? strlen(one) : 0, two ? strlen(two) : 0, n, offset);
    struct iovec parts[4] = {{head, length}, {(void *)one, one ? strlen(one) : 0}, {(void *)two, two ? strlen(two) : 0}, {(void *)data, n}};
    if (REAL(writev)(log_fd, parts, 4) < 0) abort();
    errno = before;
}

#define OPEN(name)                                                                        \
    int name(const char *path, int flags, ...) {                                          \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        char into[PATH_MAX];                                                              \
        const char *whole = at_fd(AT_FDCWD, path, into);                                  \
        if (fails(whole)) return -1;                                                      \
        int there = !access(whole, F_OK), fd = REAL(name)(path, flags, mode);             \
        if (fd >= 0 && ((flags & O_CREAT && !there) || flags & O_TRUNC)) record(there ? 't' : 'c', whole, NULL, NULL, 0, 0); \
        return fd;                                                                        \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                      \
    int name(int at, const char *path, int flags, ...) {                                  \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        char into[PATH_MAX];                                                              \
        const char *whole = at_fd(at, path, into);                                        \
        if (fails(whole)) return -1;                                                      \
        int there = !access(whole, F_OK), fd = REAL(name)(at, path, flags, mode);         \
        if (fd >= 0 && ((flags & O_CREAT && !there) || flags & O_TRUNC)) record(there ? 't' : 'c', whole, NULL, NULL, 0, 0); \
        return fd;                                                                        \
    }
OPENAT(openat)
OPENAT(openat64)

static void wrote(int fd, const void *data, ssize_t n, long long offset) {
    if (n <= 0 || log_fd < 0 || !state || state[ARMED] != 2) return;
    char into[PATH_MAX];
    const char *path = of_fd(fd, into);
    if (path && ours(path)) record('w', path, NULL, data, n, offset);
}

static long long position(int fd) { return fcntl(fd, F_GETFL) & O_APPEND ? -1 : lseek(fd, 0, SEEK_CUR); }

ssize_t write(int fd, const void *data, size_t n) {
    char into[PATH_MAX];
    if (state && state[ARMED] && fails(of_fd(fd, into))) return -1;
    long long at = state && state[ARMED] == 2 ? position(fd) : 0;
    ssize_t done = REAL(write)(fd, data, n);
    wrote(fd, data, done, at);
    return done;
}
#define PWRITE(name, off)                                                                 \
    ssize_t name(int fd, const void *data, size_t n, off offset) {                        \
        char into[PATH_MAX];                                                              \
        if (state && state[ARMED] && fails(of_fd(fd, into))) return -1;                   \
        ssize_t done = REAL(name)(fd, data, n, offset);                                   \
        wrote(fd, data, done, offset);                                                    \
        return done;                                                                      \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#define SYNC(name)                                                                        \
    int name(int fd) {                                                                    \
        char into[PATH_MAX];                                                              \
        const char *path = state && state[ARMED] ? of_fd(fd, into) : NULL;                \
        if (fails(path)) return -1;                                                       \
        int done = REAL(name)(fd);                                                        \
        if (!done) record('s', path, NULL, NULL, 0, 0);                                   \
        return done;                                                                      \
    }
SYNC(fsync)
SYNC(fdatasync)
#define TRUNCATE(name, off)                                                               \
    int name(int fd, off length) {                                                        \
        char into[PATH_MAX];                                                              \
        const char *path = state && state[ARMED] ? of_fd(fd, into) : NULL;                \
        if (fails(path)) return -1;                                                       \
        int done = REAL(name)(fd, length);                                                \
        if (!done) record('z', path, NULL, NULL, 0, length);                              \
        return done;                                                                      \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)
#define MMAP(name, off)                                                                   \
    void *name(void *at, size_t n, int protection, int flags, int fd, off offset) {       \
        char into[PATH_MAX];                                                              \
        if (fd >= 0 && state && state[ARMED] && fails(of_fd(fd, into))) return MAP_FAILED; \
        return REAL(name)(at, n, protection, flags, fd, offset);                          \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

static int renamed(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *old = at_fd(from_fd, from, one), *new = at_fd(to_fd, to, two);
    if (fails(ours(old) ? old : new)) return -1;
    int done = REAL(renameat2)(from_fd, from, to_fd, to, flags);
    if (!done) record(flags & RENAME_EXCHANGE ? 'x' : 'r', old, new, NULL, 0, 0);
    return done;
}
int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return renamed(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return renamed(a, from, b, to, flags); }

int mkdirat(int at, const char *path, mode_t mode) {
    char into[PATH_MAX];
    const char *whole = at_fd(at, path, into);
    if (fails(whole)) return -1;
    int done = REAL(mkdirat)(at, path, mode);
    if (!done) record('m', whole, NULL, NULL, 0, 0);
    return done;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int unlinkat(int at, const char *path, int flags) {
    char into[PATH_MAX];
    const char *whole = at_fd(at, path, into);
    if (fails(whole)) return -1;
    int done = REAL(unlinkat)(at, path, flags);
    if (!done) record('u', whole, NULL, NULL, 0, 0);
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *old = at_fd(a, from, one), *new = at_fd(b, to, two);
    if (fails(ours(new) ? new : old)) return -1;
    int done = REAL(linkat)(a, from, b, to, flags);
    if (!done) record('l', old, new, NULL, 0, 0);
    return done;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
