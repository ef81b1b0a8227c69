/* Lossless lean storage of frames that resemble each other: the C core of legroom.storing.
 *
 * A Store keeps, for each of several streams (one per environment), a sequence of frames of one size. A frame is cut
 * into pages; a page gets a new *version* only when its bytes change. A version is a record in an arena:
 *
 *   RAW    the page's bytes              (shared by all versions with the same content, in any stream, at any time)
 *   LZ4    the same, LZ4-compressed      (where that saves at least an eighth)
 *   NARROW the same, small numbers in few bits (masks, grids, tokens: read several times as fast as LZ4)
 *   CONST  one 32-bit word, repeated
 *   DELTA  the words that differ from the page's previous version
 *   BYTES  the same byte by byte, where that is shorter (a ball that moves)
 *   MOVE   the page's previous version moved by some bytes, and what does not follow from that: a scrolling picture
 *   PATCH  an LZ4 block whose dictionary is the page's previous version: what moved in other ways
 *
 * Reading frame t of a page finds its last version not after t, goes back to the last one that stands for itself, and
 * applies the changes up to t. A chain of changes is cut when applying it costs more than copying CHAIN_LIMIT pages.
 * Everything compares raw 32-bit words, so NaN and -0.0 are safe and one kernel serves every dtype.
 *
 * Only the buffer protocol and the stable ABI are used; the GIL is released around all work; one lock per Store keeps
 * readers and the writer apart. Nobody asks for the GIL while holding it: a fork, which holds the GIL, waits for the
 * encoder, which waits for that lock. Out of memory leaves the store as it was before the call.
 *
 * _words.h: hashes and deltas; _lz4.h, _move.h, _narrow.h, _colours.h: the codecs; _records.h: structures and reading; _store.h: writing; _dump.h: to
 * bytes and back; _threads.h: threads; _queue.h: encoding behind the caller's back; this file: the Python type.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include "_queue.h"

typedef struct {
    PyObject_HEAD
    int open;
    guarded g;
} Store;

static PyTypeObject *store_type;

static PyObject *failed_with(int problem, int system_error) {
    if (problem == NO_MEMORY) return PyErr_NoMemory();
    if (problem == SEALED) { PyErr_SetString(PyExc_ValueError, "this store is sealed: it is only read from now on"); return NULL; }
    if (problem == MALFORMED) { PyErr_SetString(PyExc_ValueError, "stored bytes are damaged"); return NULL; }
    errno = system_error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Locks the store for a short while in which the GIL is held. */
static void enter(Store *self) {
    while (pthread_mutex_trylock(&self->g.lock)) {
        Py_BEGIN_ALLOW_THREADS
        lock_store(&self->g);
        unlock_store(&self->g);
        Py_END_ALLOW_THREADS
    }
}
static void leave(Store *self) { unlock_store(&self->g); }

/* Encodes all that waits; 0, or an error. */
static int settle(Store *self) {
    int problem = 0;
    if (self->g.queueing == NEVER) return 0;
    Py_BEGIN_ALLOW_THREADS
    lock_store(&self->g);
    problem = encode_all(&self->g);
    unlock_store(&self->g);
    Py_END_ALLOW_THREADS
    return problem;
}

/* The same, and gives the queue back until it pays again. */
static int end_queue(Store *self) {
    int problem = 0;
    if (self->g.queueing == NEVER) return 0;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->g.accepting);
    problem = close_queue(&self->g);
    pthread_mutex_unlock(&self->g.accepting);
    Py_END_ALLOW_THREADS
    return problem;
}

static void store_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (((Store *)self)->open) close_guard(&((Store *)self)->g);
    else close_store(&((Store *)self)->g.s);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"n_streams", "frame_bytes", "n_stack", "outer", "newest_first", "page_bytes", "compress", "fd", "eager", "queueing", "queue_bytes", "colours", "row_bytes", "quick", NULL};
    Py_ssize_t n_streams, frame_bytes, n_stack = 1, outer = 1, page_bytes = 0, queue_bytes = 0, row_bytes = 0;
    int newest_first = 0, compress = 1, fd = -1, eager = 0, queueing = NEVER, colours = NO_COLOURS, quick = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nn|nnpnpipininp", names, &n_streams, &frame_bytes, &n_stack, &outer, &newest_first,
                                     &page_bytes, &compress, &fd, &eager, &queueing, &queue_bytes, &colours, &row_bytes, &quick)) return NULL;
    if (n_streams < 1 || n_streams > 1 << 24 || frame_bytes < 1 || frame_bytes > (Py_ssize_t)1 << 31 || n_stack < 1 || n_stack > 1 << 16
        || outer < 1 || frame_bytes % outer || page_bytes < 0 || page_bytes % 8 || (page_bytes && page_bytes < 64)
        || page_bytes > (Py_ssize_t)MAX_PAGE_BYTES || queueing < NEVER || queueing > ALWAYS || queue_bytes < 0
        || row_bytes < 0 || row_bytes > frame_bytes || colours < NO_COLOURS || colours > IN_PIXELS || (colours && (frame_bytes % PARTS || (page_bytes && page_bytes < SMALLEST_COLOUR_PAGE)))) {
        PyErr_SetString(PyExc_ValueError, "sizes out of range");
        return NULL;
    }
    Store *self = (Store *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->g.s.newest_first = newest_first; self->g.s.compress = compress; self->g.s.fd = fd; self->g.s.eager = eager;
    self->g.s.colours = colours; self->g.s.quick = quick; self->g.s.row_bytes = (uint32_t)row_bytes;
    if (open_store(&self->g.s, (uint32_t)n_streams, (uint32_t)frame_bytes, (uint32_t)n_stack, (uint32_t)outer, (uint32_t)page_bytes)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    open_guard(&self->g, queueing, (size_t)queue_bytes);
    self->open = 1;
    return (PyObject *)self;
}

static PyObject *store_append(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_buffer obs;
    Py_ssize_t stream;
    if (!PyArg_ParseTuple(args, "ny*", &stream, &obs)) return NULL;
    if (stream < 0 || stream >= self->g.s.n_streams || obs.len != (Py_ssize_t)observation_bytes(&self->g.s)) {
        PyErr_Format(PyExc_ValueError, "stream %zd of %u, %zd bytes instead of %zu", stream, self->g.s.n_streams, obs.len,
                     observation_bytes(&self->g.s));
        PyBuffer_Release(&obs);
        return NULL;
    }
    int64_t number;
    int system_error;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->g.accepting);
    number = put(&self->g, (uint32_t)stream, obs.buf);
    system_error = errno;
    pthread_mutex_unlock(&self->g.accepting);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&obs);
    return number < 0 ? failed_with((int)number, system_error) : PyLong_FromLongLong(number);
}

/* One observation for every stream, in order; their numbers go to `numbers`. */
static PyObject *store_append_all(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_buffer obs, numbers;
    if (!PyArg_ParseTuple(args, "y*w*", &obs, &numbers)) return NULL;
    size_t each = observation_bytes(&self->g.s);
    int64_t number = 0;
    int system_error = 0, fits = (size_t)obs.len == each * self->g.s.n_streams && (size_t)numbers.len == 4u * self->g.s.n_streams;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&self->g.accepting);
        for (uint32_t stream = 0; stream < self->g.s.n_streams && number >= 0; stream++) {
            number = put(&self->g, stream, (const unsigned char *)obs.buf + stream * each);
            uint32_t short_number = (uint32_t)number;
            if (number >= 0) memcpy((unsigned char *)numbers.buf + 4 * (size_t)stream, &short_number, 4);
        }
        system_error = errno;
        pthread_mutex_unlock(&self->g.accepting);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&obs); PyBuffer_Release(&numbers);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "one observation and one uint32 per stream are needed"); return NULL; }
    if (number < 0) return failed_with((int)number, system_error);
    Py_RETURN_NONE;
}

/* The row of a ring: an observation and what follows it for every stream; numbers[row] says where they are, see
 * locate_rows. It changes only once all of them are stored. */
static PyObject *store_append_pairs(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_buffer obs[2], numbers;
    Py_ssize_t row;
    if (!PyArg_ParseTuple(args, "y*y*w*n", &obs[0], &obs[1], &numbers, &row)) return NULL;
    uint32_t n = self->g.s.n_streams;
    size_t each = observation_bytes(&self->g.s);
    int64_t number = 0;
    int system_error = 0, fits = (size_t)obs[0].len == each * n && (size_t)obs[1].len == each * n && row >= 0
                                 && (size_t)numbers.len >= 4 * (size_t)n * ((size_t)row + 1);
    uint32_t few[64], *found = n <= 32 ? few : PyMem_Malloc(8 * (size_t)n);
    if (fits && found) {
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&self->g.accepting);
        for (uint32_t i = 0; i < 2 * n && number >= 0; i++) {
            uint32_t stream = i < n ? i : i - n;
            number = put(&self->g, stream, (const unsigned char *)obs[i >= n].buf + stream * each);
            found[i] = (uint32_t)number;
        }
        system_error = errno;
        for (uint32_t i = 0; i < n && number >= 0; i++) {
            uint32_t distance = found[n + i] - found[i], packed = found[i] | (distance == 1 ? 0u : distance ? 2u : 1u) << 30;
            memcpy((unsigned char *)numbers.buf + 4 * ((size_t)row * n + i), &packed, 4);
        }
        pthread_mutex_unlock(&self->g.accepting);
        Py_END_ALLOW_THREADS
    }
    if (found != few) PyMem_Free(found);
    PyBuffer_Release(&obs[0]); PyBuffer_Release(&obs[1]); PyBuffer_Release(&numbers);
    if (!fits) { PyErr_SetString(PyExc_ValueError, "two observations per stream and a row of numbers are needed"); return NULL; }
    if (!found) return PyErr_NoMemory();
    if (number < 0) return failed_with((int)number, system_error);
    Py_RETURN_NONE;
}

/* What to read: observation i is numbers[i] of streams[i] in stores[which[i]] (stores[0] without `which`), and nexts[i]
 * of the same where `nexts` is given. */
typedef struct {
    Store **stores;
    Py_ssize_t n_stores, count;
    const unsigned char *which, *streams, *numbers, *nexts;
    unsigned char *out, *out_next;
    int zeros;                  /* whether an observation without a number was never written, and is read as zeros */
} reading;

static inline guarded *store_of(const reading *r, Py_ssize_t i) {
    uint32_t at = r->which ? load32(r->which + 4 * i) : 0;
    return at < (size_t)r->n_stores ? &r->stores[at]->g : NULL;
}

/* Small frames lie anywhere in memory: fetch what reading them will touch a few items ahead. Checks as reading does. */
static inline void fetch_ahead(const reading *r, Py_ssize_t i, int records) {
    if (i >= r->count) return;
    const guarded *from = store_of(r, i);
    if (!from) return;
    const store *s = &from->s;
    uint32_t stream = load32(r->streams + 4 * i), number = load32(r->numbers + 4 * i);
    if (s->n_pages > 1 || stream >= s->n_streams || !s->pages[stream].length) return;
    const page *g = &s->pages[stream];
    uint32_t near = number < g->length ? number : g->length - 1;
    if (!records) { fetch(&g->versions[near]); fetch(&g->versions[near] + 2); return; }
    uint64_t at = (uint64_t)g->versions[near].ref * s->unit;
    const unsigned char *bytes = s->arenas[at / ARENA_BYTES].bytes;
    if (!bytes) return;
    for (uint32_t line = 0; line < 4; line++) fetch(bytes + at % ARENA_BYTES + 64 * line);
}

#define NO_SUCH (-4)

/* Writes one observation to `out`, and the one that ends with the following frame to `next` where that is given. */
static int read_pair(const guarded *g, uint32_t stream, uint32_t number, unsigned char *out, unsigned char *next, unsigned char *room) {
    const store *s = &g->s;
    uint32_t length = s->length[stream], last = number + (next ? 1 : 0);
    if (number == NONE || number + 1 < s->n_stack) return NO_SUCH;
    if (last < length) return read_observations(s, stream, number, out, next, room);
    const unsigned char *raw = number < length ? NULL : waiting_observation(g, stream, number);
    if (raw) memcpy(out, raw, observation_bytes(s));
    else if (number >= length) return NO_SUCH;
    else { int problem = read_observations(s, stream, number, out, NULL, room); if (problem) return problem; }
    if (!next) return 0;
    if (!(raw = waiting_observation(g, stream, last))) return NO_SUCH;
    memcpy(next, raw, observation_bytes(s));
    return 0;
}

static int read_one(const reading *r, Py_ssize_t i, unsigned char *room) {
    const guarded *g = store_of(r, i);
    uint32_t stream = load32(r->streams + 4 * i), number = load32(r->numbers + 4 * i), next = r->nexts ? load32(r->nexts + 4 * i) : number;
    if (!g || stream >= g->s.n_streams) return NO_SUCH;
    size_t each = observation_bytes(&g->s);
    unsigned char *to = r->out + (size_t)i * each, *to_next = r->nexts ? r->out_next + (size_t)i * each : NULL;
    if (number == NONE && r->zeros) {
        memset(to, 0, each);
        if (to_next) memset(to_next, 0, each);
        return 0;
    }
    if (!r->nexts || next == number + 1) return read_pair(g, stream, number, to, to_next, room);
    int problem = read_pair(g, stream, number, to, NULL, room);
    return problem ? problem : read_pair(g, stream, next, to_next, NULL, room);
}

/* A batch that two threads share out, a few observations at a time. */
#define PART 4
typedef struct { const reading *r; unsigned char *room[2]; Py_ssize_t next; int problem, system_error; } shared_batch;
static void read_parts(void *batch, int who) {
    shared_batch *b = batch;
    const reading *r = b->r;
    for (;;) {
        Py_ssize_t from = __atomic_fetch_add(&b->next, PART, __ATOMIC_RELAXED), to = from + PART < r->count ? from + PART : r->count;
        if (from >= r->count || __atomic_load_n(&b->problem, __ATOMIC_RELAXED)) return;
        for (Py_ssize_t i = from; i < to; i++) {
            fetch_ahead(r, i + 16, 0);
            fetch_ahead(r, i + 8, 1);
            int problem = read_one(r, i, b->room[who]), none = 0;
            if (problem && __atomic_compare_exchange_n(&b->problem, &none, problem, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) b->system_error = errno;
        }
    }
}

/* Encodes what waits in all stores, where a frame is asked for that no observation in a queue ends with. */
static int encode_waiting(const reading *r) {
    int problem = 0, waited = 0;
    for (Py_ssize_t k = 0; k < r->n_stores && !problem; k++) {
        guarded *g = &r->stores[k]->g;
        waited |= g->q && g->q->head < queue_tail(g->q);
        problem = encode_all(g);
    }
    return problem ? problem : waited ? 0 : NO_SUCH;
}

/* Reads everything; the GIL is not held. All stores are locked, one caller at a time so that two cannot block each
 * other half-way; nobody else ever waits for a store while holding another. With `together`, a batch that is worth
 * waking another thread for is decoded in two: by what one took lately, or by its bytes while that is not known. */
#define WORTH_HELP ((size_t)256 << 10)
#define WORTH_HELP_NS 150000u
static pthread_mutex_t locking = PTHREAD_MUTEX_INITIALIZER;
static int read_all(const reading *r, int together) {
    size_t room = 0, bytes = (size_t)r->count * observation_bytes(&r->stores[0]->g.s) * (r->nexts ? 2 : 1);
    for (Py_ssize_t k = 0; k < r->n_stores; k++) {
        size_t need = reader_room(&r->stores[k]->g.s);
        room = need > room ? need : room;
    }
    uint32_t *each = &r->stores[0]->g.reading_ns, known = __atomic_load_n(each, __ATOMIC_RELAXED);
    int worth = known ? (uint64_t)r->count * known >= WORTH_HELP_NS : bytes >= WORTH_HELP;
    together = together && worth && r->count >= 2 * PART && several_processors();
    shared_batch b = {.r = r, .room = {take((together ? 2 : 1) * room)}};
    b.room[1] = together ? b.room[0] + room : NULL;
    if (!b.room[0]) return NO_MEMORY;
    pthread_mutex_lock(&locking);
    for (Py_ssize_t k = 0; k < r->n_stores; k++) lock_store(&r->stores[k]->g);
    pthread_mutex_unlock(&locking);
    if (r->stores[0]->g.s.opened) {
        uint64_t held = 0;
        for (Py_ssize_t k = 0; k < r->n_stores; k++) held += r->stores[k]->g.s.held_bytes;
        for (Py_ssize_t k = 0; k < r->n_stores && held > HELD_BYTES; k++) if (r->stores[k]->g.s.opened) let_go(&r->stores[k]->g.s);
    }
    uint64_t began = nanoseconds();
    for (int again = 0; again < 2; again++) {
        b.next = 0; b.problem = 0;
        if (together) work_together(read_parts, &b); else read_parts(&b, 0);
        if (b.problem != NO_SUCH || again || (b.problem = encode_waiting(r))) break;
    }
    if (r->count >= 2 * PART) {
        uint64_t now = (nanoseconds() - began) * (together ? 2 : 1) / (uint64_t)r->count;
        if (now > UINT32_MAX / 4) now = UINT32_MAX / 4;
        __atomic_store_n(each, (uint32_t)(known ? (7 * (uint64_t)known + now) / 8 : now) + 1, __ATOMIC_RELAXED);
    }
    for (Py_ssize_t k = 0; k < r->n_stores; k++) unlock_store(&r->stores[k]->g);
    free(b.room[0]);
    if (b.problem) errno = b.system_error;
    return b.problem;
}

static PyObject *finish_reading(int problem, int system_error) {
    if (problem == NO_SUCH) { PyErr_SetString(PyExc_IndexError, "no such observation"); return NULL; }
    if (problem == MALFORMED) return failed_with(SYSTEM_ERROR, EIO);      /* what was loaded is sound: the file has changed */
    if (problem) return failed_with(problem, system_error);
    Py_RETURN_NONE;
}

static PyObject *store_read(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_buffer streams, numbers, out;
    if (!PyArg_ParseTuple(args, "y*y*w*", &streams, &numbers, &out)) return NULL;
    Py_ssize_t count = streams.len / 4;
    int problem = NO_SUCH, system_error = 0;
    if (streams.len % 4 == 0 && numbers.len == streams.len && out.len == (Py_ssize_t)(count * observation_bytes(&self->g.s))) {
        Py_BEGIN_ALLOW_THREADS
        problem = read_all(&(reading){&self, 1, count, NULL, streams.buf, numbers.buf, NULL, out.buf, NULL, 0}, 1);
        system_error = errno;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&streams); PyBuffer_Release(&numbers); PyBuffer_Release(&out);
    return finish_reading(problem, system_error);
}

/* Borrows the Stores of a tuple; NULL with an exception set unless all have the same geometry. */
static Store **stores_of(PyObject *tuple, Py_ssize_t n) {
    Store **stores = PyMem_Malloc((size_t)n * sizeof *stores);
    if (!stores) { PyErr_NoMemory(); return NULL; }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *one = PyTuple_GetItem(tuple, i);
        if (one && PyObject_TypeCheck(one, store_type)) {
            const store *a = &((Store *)one)->g.s, *b = i ? &stores[0]->g.s : a;
            int seen = 0;
            for (Py_ssize_t k = 0; k < i; k++) seen |= stores[k] == (Store *)one;
            stores[i] = (Store *)one;
            if (!seen && a->frame_bytes == b->frame_bytes && a->n_stack == b->n_stack && a->outer == b->outer && a->newest_first == b->newest_first)
                continue;       /* pages may differ: what an earlier version stored goes on in its own */
        }
        PyMem_Free(stores);
        PyErr_SetString(PyExc_ValueError, "different stores of one geometry are needed");
        return NULL;
    }
    return stores;
}

static PyObject *gather_some(PyObject *args, int pairs) {
    PyObject *tuple;
    Py_buffer which, streams, numbers, nexts = {0}, out, out_next = {0};
    if (!(pairs ? PyArg_ParseTuple(args, "O!y*y*y*y*w*w*", &PyTuple_Type, &tuple, &which, &streams, &numbers, &nexts, &out, &out_next)
                : PyArg_ParseTuple(args, "O!y*y*y*w*", &PyTuple_Type, &tuple, &which, &streams, &numbers, &out))) return NULL;
    Py_ssize_t n = PyTuple_Size(tuple), count = streams.len / 4;
    int problem = NO_SUCH, system_error = 0;
    Store **stores = n ? stores_of(tuple, n) : NULL;
    if (stores) {
        Py_ssize_t bytes = (Py_ssize_t)(count * observation_bytes(&stores[0]->g.s));
        if (streams.len % 4 == 0 && which.len == streams.len && numbers.len == streams.len && out.len == bytes
            && (!pairs || (nexts.len == streams.len && out_next.len == bytes))) {
            Py_BEGIN_ALLOW_THREADS
            problem = read_all(&(reading){stores, n, count, which.buf, streams.buf, numbers.buf, pairs ? nexts.buf : NULL, out.buf, out_next.buf, 0}, 1);
            system_error = errno;
            Py_END_ALLOW_THREADS
        }
        PyMem_Free(stores);
    }
    PyBuffer_Release(&which); PyBuffer_Release(&streams); PyBuffer_Release(&numbers); PyBuffer_Release(&out);
    if (pairs) { PyBuffer_Release(&nexts); PyBuffer_Release(&out_next); }
    return PyErr_Occurred() ? NULL : finish_reading(problem, system_error);
}
/* Where the rows of a ring are: see gather_ring in reference.py, which does the same with arrays. Fills which, streams,
 * numbers and nexts (`count` words each, one after the other); 0, or -1 for a row or environment that does not exist. */
typedef struct { long long count, n_rows, n_envs; const unsigned char *firsts, *numbers; Py_ssize_t n_stores; uint32_t n_stack; } ring;
static inline int64_t load_long(const unsigned char *p) { return (int64_t)load64(p); }
static int locate_rows(const ring *r, const unsigned char *rows, const unsigned char *envs, Py_ssize_t count, uint32_t *found) {
    long long position = r->count % r->n_rows;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = load_long(rows + 8 * i), env = load_long(envs + 8 * i);
        if (row < 0 || row >= r->n_rows || env < 0 || env >= r->n_envs) return -1;
        fetch(r->numbers + 4 * (row * r->n_envs + env));
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = load_long(rows + 8 * i), env = load_long(envs + 8 * i);
        int64_t ever = r->count - position + row - (row >= position ? r->n_rows : 0);
        Py_ssize_t low = 0;                             /* firsts[low] <= ever; without branches, which nobody could foresee */
        for (Py_ssize_t left = r->n_stores, half; left > 1; left -= half) {
            half = left / 2;
            low += load_long(r->firsts + 8 * (low + half)) <= ever ? half : 0;
        }
        uint32_t packed = load32(r->numbers + 4 * (row * r->n_envs + env)), number = packed & 0x3FFFFFFFu, code = packed >> 30;
        uint32_t next = number + (code == 0 ? 1 : code == 1 ? 0 : r->n_stack), never = ever < 0 ? NONE : 0;
        found[i] = (uint32_t)low; found[count + i] = (uint32_t)env; found[2 * count + i] = number | never; found[3 * count + i] = next | never;
    }
    return 0;
}

static PyObject *gather_ring(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *tuple;
    Py_buffer firsts, rows, envs, ring_numbers, out, out_next;
    ring r = {0};
    int side;
    if (!PyArg_ParseTuple(args, "O!y*LLLy*y*y*iw*w*", &PyTuple_Type, &tuple, &firsts, &r.count, &r.n_rows, &r.n_envs, &ring_numbers, &rows, &envs,
                          &side, &out, &out_next)) return NULL;
    Py_ssize_t count = rows.len / 8;
    int problem = NO_SUCH, system_error = 0;
    r.n_stores = PyTuple_Size(tuple);
    Store **stores = r.n_stores ? stores_of(tuple, r.n_stores) : NULL;
    uint32_t *found = stores ? PyMem_Malloc(16 * (size_t)count + 16) : NULL;
    if (stores && !found) PyErr_NoMemory();
    if (found) {
        Py_ssize_t bytes = (Py_ssize_t)(count * observation_bytes(&stores[0]->g.s));
        r.firsts = firsts.buf; r.numbers = ring_numbers.buf; r.n_stack = stores[0]->g.s.n_stack;
        if (r.n_rows > 0 && r.n_envs > 0 && firsts.len == 8 * r.n_stores && ring_numbers.len / 4 / r.n_envs == r.n_rows
            && ring_numbers.len == 4 * r.n_rows * r.n_envs && rows.len % 8 == 0
            && envs.len == rows.len && out.len == bytes && (side < 2 || out_next.len == bytes)) {
            Py_BEGIN_ALLOW_THREADS
            if (!locate_rows(&r, rows.buf, envs.buf, count, found)) {
                const unsigned char *which = (unsigned char *)found, *numbers = which + 8 * count, *nexts = which + 12 * count;
                problem = read_all(&(reading){stores, r.n_stores, count, which, which + 4 * count, side == 1 ? nexts : numbers,
                                              side == 2 ? nexts : NULL, out.buf, out_next.buf, 1}, 1);
                system_error = errno;
            }
            Py_END_ALLOW_THREADS
        }
    }
    PyMem_Free(found); PyMem_Free(stores);
    PyBuffer_Release(&firsts); PyBuffer_Release(&rows); PyBuffer_Release(&envs); PyBuffer_Release(&ring_numbers);
    PyBuffer_Release(&out); PyBuffer_Release(&out_next);
    return PyErr_Occurred() ? NULL : finish_reading(problem, system_error);
}

static PyObject *gather(PyObject *module, PyObject *args) { (void)module; return gather_some(args, 0); }
static PyObject *gather_pairs(PyObject *module, PyObject *args) { (void)module; return gather_some(args, 1); }

static PyObject *store_length(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_ssize_t stream;
    if (!PyArg_ParseTuple(args, "n", &stream)) return NULL;
    if (stream < 0 || stream >= self->g.s.n_streams) { PyErr_SetString(PyExc_IndexError, "no such stream"); return NULL; }
    uint32_t length;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->g.accepting);
    if (!self->g.q) lock_store(&self->g);
    length = self->g.q ? self->g.q->length[stream] : self->g.s.length[stream];
    if (!self->g.q) unlock_store(&self->g);
    pthread_mutex_unlock(&self->g.accepting);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLong(length);
}

static uint64_t resident_bytes(const store *s) {
    if (s->opened) return s->held_bytes;
    uint64_t bytes = s->ready ? ARENA_BYTES : 0;        /* touched memory pages: those below `used`, or whole huge ones */
    for (uint32_t i = s->first_resident; i < s->n_arenas; i++)
        if (s->arenas[i].mapped) {
            int whole = !s->sealed && in_huge_pages(s, i) && !(s->trimmed && i + 1 == s->n_arenas);
            bytes += whole ? ARENA_BYTES : (s->arenas[i].used + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1);
        }
    if (!s->sealed && s->n_arenas > s->first_resident && s->touched > s->arenas[s->n_arenas - 1].used)
        bytes += s->touched - ((s->arenas[s->n_arenas - 1].used + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1));
    return bytes;
}

static PyObject *store_resident(PyObject *object, PyObject *ignored) {
    (void)ignored;
    Store *self = (Store *)object;
    settle(self);
    enter(self);
    uint64_t bytes = resident_bytes(&self->g.s);
    leave(self);
    return PyLong_FromUnsignedLongLong(bytes);
}

static PyObject *store_nbytes(PyObject *object, PyObject *ignored) {
    (void)ignored;
    Store *self = (Store *)object;
    static const char *const kinds[KINDS] = {"raw", "lz4", "const", "delta", "patch", "narrow", "bytes", "move"};
    settle(self);
    enter(self);
    const store copy = self->g.s;
    uint64_t arenas = resident_bytes(&copy), spilled = 0, sums = 0, waiting = queue_bytes(&copy, self->g.q);
    for (uint32_t i = 0; i < copy.first_resident; i++) { spilled += copy.arenas[i].used; sums += 4 * blocks_of(copy.arenas[i].used); }
    leave(self);
    uint64_t index = copy.nbytes_versions + (uint64_t)copy.n_streams * copy.n_pages * sizeof(page) + (uint64_t)copy.table_size * sizeof(slot)
                     + copy.cap_arenas * sizeof(arena) + sums;
    uint64_t current = copy.nbytes_now + (copy.tail ? copy.n_streams * (uint64_t)observation_bytes(&copy) : 0)
                       + (copy.palettes ? copy.n_streams * sizeof *copy.palettes + coded_bytes(&copy) : 0);
    PyObject *result = Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "arenas", (unsigned long long)arenas, "index", (unsigned long long)index, "current",
                                     (unsigned long long)current, "queue", (unsigned long long)waiting, "spilled", (unsigned long long)spilled);
    for (int k = 0; result && k < KINDS; k++) {
        PyObject *entry = Py_BuildValue("(KK)", (unsigned long long)copy.records[k], (unsigned long long)copy.payload[k]);
        if (!entry || PyDict_SetItemString(result, kinds[k], entry)) Py_CLEAR(result);
        Py_XDECREF(entry);
    }
    return result;
}

static PyObject *store_spill(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    unsigned long long keep;
    if (!PyArg_ParseTuple(args, "K", &keep)) return NULL;
    if (self->g.s.fd < 0) { PyErr_SetString(PyExc_ValueError, "this store has no file to spill to"); return NULL; }
    int problem, system_error;
    Py_BEGIN_ALLOW_THREADS
    lock_store(&self->g);
    problem = spill_arenas(&self->g.s, keep);
    system_error = errno;
    unlock_store(&self->g);
    Py_END_ALLOW_THREADS
    if (problem) return failed_with(problem, system_error);
    Py_RETURN_NONE;
}

static PyObject *store_seal(PyObject *object, PyObject *ignored) {
    (void)ignored;
    Store *self = (Store *)object;
    int problem = end_queue(self);
    if (problem) return failed_with(problem, errno);
    enter(self);
    if (!self->g.s.sealed) seal_store(&self->g.s);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *store_trim(PyObject *object, PyObject *ignored) {
    (void)ignored;
    int problem = end_queue((Store *)object);
    if (problem) return failed_with(problem, errno);
    enter((Store *)object);
    trim(&((Store *)object)->g.s);
    leave((Store *)object);
    Py_RETURN_NONE;
}

static PyObject *store_n_arenas(PyObject *object, PyObject *ignored) {
    (void)ignored;
    int problem = settle((Store *)object);
    if (problem) return failed_with(problem, errno);
    return PyLong_FromUnsignedLong(((Store *)object)->g.s.n_arenas);
}

static PyObject *store_dump_index(PyObject *object, PyObject *ignored) {
    (void)ignored;
    Store *self = (Store *)object;
    int problem = settle(self);
    if (problem) return failed_with(problem, errno);
    enter(self);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * index_words(&self->g.s)));
    if (bytes) write_index(&self->g.s, (uint32_t *)(void *)PyBytes_AsString(bytes));
    leave(self);
    return bytes;
}

static PyObject *store_dump_arena(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_ssize_t i;
    if (!PyArg_ParseTuple(args, "n", &i)) return NULL;
    enter(self);
    PyObject *bytes = NULL;
    int problem = 0;
    if (i < 0 || i >= self->g.s.n_arenas) PyErr_SetString(PyExc_IndexError, "no such arena");
    else bytes = PyBytes_FromStringAndSize(NULL, self->g.s.arenas[i].used);
    if (bytes) problem = copy_arena(&self->g.s, (uint32_t)i, (unsigned char *)PyBytes_AsString(bytes));
    leave(self);
    if (problem) { int system_error = errno; Py_CLEAR(bytes); return failed_with(problem, system_error); }
    return bytes;
}

/* Fills a fresh store from an index and arenas. */
static PyObject *store_load(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    PyObject *list;
    Py_buffer index;
    if (!PyArg_ParseTuple(args, "y*O!", &index, &PyList_Type, &list)) return NULL;
    Py_ssize_t n = PyList_Size(list), held = 0;
    const unsigned char **arenas = PyMem_Calloc((size_t)n + 1, sizeof *arenas);
    size_t *sizes = PyMem_Calloc((size_t)n + 1, sizeof *sizes);
    Py_buffer *views = PyMem_Calloc((size_t)n + 1, sizeof *views);
    uint32_t *words = PyMem_Malloc((size_t)index.len + 4);     /* a copy, since the buffer need not be aligned */
    int problem = arenas && sizes && words && views ? 0 : NO_MEMORY, system_error = 0;
    for (; held < n && !problem; held++) {
        if (PyObject_GetBuffer(PyList_GetItem(list, held), &views[held], PyBUF_SIMPLE)) goto done;
        arenas[held] = views[held].buf; sizes[held] = (size_t)views[held].len;
    }
    if (!problem && index.len % 4) problem = MALFORMED;
    if (!problem) {
        memcpy(words, index.buf, (size_t)index.len);
        end_queue(self);
        enter(self);
        if (self->g.s.sealed) problem = SEALED;
        else if (self->g.s.n_arenas) problem = MALFORMED;      /* only into an empty store */
        else problem = load_store(&self->g.s, words, (size_t)index.len / 4, arenas, sizes, (size_t)n, NULL, NULL);
        system_error = errno;
        leave(self);
    }
    if (problem) failed_with(problem, system_error);
done:
    while (held--) PyBuffer_Release(&views[held]);
    PyMem_Free(arenas); PyMem_Free(sizes); PyMem_Free(words); PyMem_Free(views);
    PyBuffer_Release(&index);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* Fills a fresh store from an index and arenas in a file, which are read as needed: `where` is uint64 [n][2], their
 * places and sizes, `sums` is uint32, what block_sums returned of each. */
static PyObject *store_open(PyObject *object, PyObject *args) {
    Store *self = (Store *)object;
    Py_buffer index, where, sums;
    int fd;
    if (!PyArg_ParseTuple(args, "y*iy*y*", &index, &fd, &where, &sums)) return NULL;
    size_t n = (size_t)where.len / 16, blocks = 0;
    uint64_t *at = PyMem_Malloc((size_t)where.len + 8);
    size_t *sizes = PyMem_Malloc(n * sizeof *sizes + 1);
    uint32_t *words = PyMem_Malloc((size_t)index.len + 4), *copied = PyMem_Malloc((size_t)sums.len + 4);  /* aligned */
    int problem = at && sizes && words && copied ? fd >= 0 && index.len % 4 == 0 ? 0 : MALFORMED : NO_MEMORY, system_error = 0;
    for (size_t i = 0; i < n && !problem; i++) {
        at[i] = load64((const unsigned char *)where.buf + 16 * i);
        sizes[i] = (size_t)load64((const unsigned char *)where.buf + 16 * i + 8);
        if (sizes[i] > ARENA_BYTES || at[i] > INT64_MAX - ARENA_BYTES) problem = MALFORMED;
        else blocks += blocks_of((uint32_t)sizes[i]);
    }
    if (!problem && (size_t)sums.len != 4 * blocks) problem = MALFORMED;
    if (!problem) {
        memcpy(words, index.buf, (size_t)index.len); memcpy(copied, sums.buf, (size_t)sums.len);
        end_queue(self);
        enter(self);
        if (self->g.s.sealed) problem = SEALED;
        else if (self->g.s.n_arenas) problem = MALFORMED;
        else problem = load_store(&self->g.s, words, (size_t)index.len / 4, NULL, sizes, n, at, copied);
        system_error = errno;
        if (!problem) self->g.s.opened = fd + 1;
        leave(self);
    }
    PyMem_Free(at); PyMem_Free(sizes); PyMem_Free(words); PyMem_Free(copied);
    PyBuffer_Release(&index); PyBuffer_Release(&where); PyBuffer_Release(&sums);
    if (problem) return failed_with(problem, system_error);
    Py_RETURN_NONE;
}

/* Where in its file each block begins that could not be read, or was not as written. */
static PyObject *store_damaged(PyObject *object, PyObject *ignored) {
    (void)ignored;
    Store *self = (Store *)object;
    PyObject *list = PyList_New(0);
    enter(self);
    for (uint32_t i = 0; i < self->g.s.n_arenas && list && self->g.s.opened; i++)
        for (uint32_t b = 0; b < blocks_of(self->g.s.arenas[i].used) && list; b++) {
            if (self->g.s.arenas[i].held[b] != DAMAGED) continue;
            PyObject *at = PyLong_FromUnsignedLongLong(self->g.s.arenas[i].at + (uint64_t)b * BLOCK);
            if (!at || PyList_Append(list, at)) Py_CLEAR(list);
            Py_XDECREF(at);
        }
    leave(self);
    return list;
}

static PyObject *block_sums(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer arena;
    if (!PyArg_ParseTuple(args, "y*", &arena)) return NULL;
    Py_ssize_t n = (arena.len + BLOCK - 1) / BLOCK;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 4 * n);
    for (Py_ssize_t b = 0; b < n && bytes; b++) {
        Py_ssize_t left = arena.len - b * (Py_ssize_t)BLOCK;
        uint32_t sum = block_sum((const unsigned char *)arena.buf + b * (Py_ssize_t)BLOCK, left < (Py_ssize_t)BLOCK ? (uint32_t)left : BLOCK);
        memcpy(PyBytes_AsString(bytes) + 4 * b, &sum, 4);
    }
    PyBuffer_Release(&arena);
    return bytes;
}

#ifdef LEGROOM_FAIL_ALLOC
static PyObject *fail_after(PyObject *module, PyObject *args) {
    (void)module;
    long long n;
    if (!PyArg_ParseTuple(args, "L", &n)) return NULL;
    fail_countdown = n;
    Py_RETURN_NONE;
}
#endif

static PyMethodDef methods[] = {
    {"append", store_append, METH_VARARGS, "append(stream, observation) -> number of its newest frame"},
    {"append_all", store_append_all, METH_VARARGS, "append_all(observations, numbers): one for every stream"},
    {"append_pairs", store_append_pairs, METH_VARARGS, "append_pairs(observations, next_observations, numbers, row): a ring's row"},
    {"read", store_read, METH_VARARGS, "read(streams, numbers, out): uint32 arrays of equal length"},
    {"length", store_length, METH_VARARGS, "length(stream) -> frames in it"},
    {"nbytes", store_nbytes, METH_NOARGS, "nbytes() -> bytes by purpose, and (records, bytes) by kind"},
    {"resident", store_resident, METH_NOARGS, "resident() -> bytes of arenas in memory"},
    {"spill", store_spill, METH_VARARGS, "spill(keep_bytes): moves the oldest arenas to the file"},
    {"seal", store_seal, METH_NOARGS, "seal(): gives back what only writing needs; the store is only read from now on"},
    {"trim", store_trim, METH_NOARGS, "trim(): gives back memory taken ahead of time; writing may go on"},
    {"n_arenas", store_n_arenas, METH_NOARGS, "n_arenas() -> arenas, in memory and on disk"},
    {"dump_index", store_dump_index, METH_NOARGS, "dump_index() -> bytes that load() takes"},
    {"dump_arena", store_dump_arena, METH_VARARGS, "dump_arena(i) -> bytes that load() takes"},
    {"load", store_load, METH_VARARGS, "load(index, arenas): fills an empty store of the same geometry"},
    {"open", store_open, METH_VARARGS, "open(index, fd, where, sums): the same, reading arenas in a file as needed; the store is sealed"},
    {"damaged", store_damaged, METH_NOARGS, "damaged() -> where blocks of that file begin that are not as written"},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef functions[] = {
    {"block_sums", block_sums, METH_VARARGS, "block_sums(arena) -> a checksum of each 4 KiB"},
    {"gather", gather, METH_VARARGS, "gather(stores, which, streams, numbers, out): read from several stores"},
    {"gather_pairs", gather_pairs, METH_VARARGS, "gather_pairs(stores, which, streams, numbers, nexts, out, out_next)"},
    {"gather_ring", gather_ring, METH_VARARGS,
     "gather_ring(stores, firsts, count, n_rows, n_envs, numbers, rows, envs, side, out, out_next): rows of a ring"},
#ifdef LEGROOM_FAIL_ALLOC
    {"fail_after", fail_after, METH_VARARGS, "fail_after(n): the n-th allocation from now fails; 0: none"},
#endif
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, store_new}, {Py_tp_dealloc, store_dealloc}, {Py_tp_methods, methods},
    {Py_tp_doc, "Frames of one size in several streams, stored once where they repeat."}, {0, NULL},
};
static PyType_Spec spec = {"legroom.storing._core.Store", sizeof(Store), 0, Py_TPFLAGS_DEFAULT, slots};
static int exec_module(PyObject *module) {
    PyObject *type = PyType_FromSpec(&spec);
    if (!type) return -1;
    watch_forks();
    store_type = (PyTypeObject *)type;      /* kept for good: gather() checks its arguments against it */
    return PyModule_AddObjectRef(module, "Store", type);
}
static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, exec_module}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_core", "The C core of lean storage.", 0, functions, module_slots, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }
