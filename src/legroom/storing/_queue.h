/* Observations that were accepted and are not yet encoded: raw, in order, in a ring of slots. No Python here. See _core.c.
 *
 * Accepting compares an observation with the last one of its stream and copies it; that is all its number depends on.
 * The encoder (_threads.h), or whoever needs room or the records, writes the oldest one to the store, so that the store
 * gets the same observations in the same order as without a queue, and its records are the same bytes.
 *
 * `accepting` is held by whoever adds, `lock` by whoever reads or writes the store; who needs both takes them in that
 * order. Slots between head and tail change for nobody: head moves under `lock`, tail under `accepting`.
 */
#ifndef LEGROOM_QUEUE_H
#define LEGROOM_QUEUE_H
#include "_dump.h"
#include "_threads.h"

#define QUEUE_BYTES ((size_t)128 << 10) /* of slots, or two rows */
#define MOST_QUEUE_BYTES ((size_t)4 << 20)  /* larger observations than a quarter of it are not queued */
#define MOST_SLOTS 256u
#define SMALLEST_QUEUED 1024u   /* bytes of an observation; encoding smaller ones takes little longer than queueing them */
#define WINDOW 16u              /* observations in a row whose encoding is timed before it is decided */
#define WORTH_NS 2000u          /* what queueing one costs, and a quarter more of what copying it does */

enum queueing { NEVER, IF_IT_PAYS, ALWAYS };

typedef struct { uint32_t stream, number, known; } accepted;
typedef struct {
    unsigned char *slots;
    accepted *items;
    uint32_t depth;
    uint64_t head, tail;        /* observations encoded and accepted, since the queue began */
    uint32_t *length;           /* frames per stream, with those that wait */
    uint64_t *last;             /* 1 + the place of each stream's last observation in the queue, 0: it was never in it */
    int stuck;                  /* encoding failed; tried again by whoever needs it done */
} queue;

typedef struct {
    job j;                      /* first, so that the encoder's job is this */
    pthread_mutex_t accepting, lock;
    int wanted;                 /* others wait for the lock: the encoder lets them */
    int queueing;
    size_t queue_bytes;         /* most that slots may take, 0: as many as are useful */
    uint32_t timed, slow;       /* observations of this window, and those that a queue would have been faster for */
    uint32_t reading_ns;        /* what an observation took to read lately, in one thread; 0: not known */
    queue *q;                   /* changes only with both locks held */
    store s;
} guarded;

static inline size_t observation_bytes(const store *s) { return (size_t)s->n_stack * s->frame_bytes; }
static inline uint64_t queue_head(const queue *q) { return __atomic_load_n(&q->head, __ATOMIC_ACQUIRE); }
static inline uint64_t queue_tail(const queue *q) { return __atomic_load_n(&q->tail, __ATOMIC_SEQ_CST); }
static inline unsigned char *slot_of(const guarded *g, uint64_t place) { return g->q->slots + place % g->q->depth * observation_bytes(&g->s); }

static void lock_store(guarded *g) {
    if (!pthread_mutex_trylock(&g->lock)) return;
    __atomic_add_fetch(&g->wanted, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&g->lock);
    __atomic_sub_fetch(&g->wanted, 1, __ATOMIC_SEQ_CST);
}
static void unlock_store(guarded *g) { pthread_mutex_unlock(&g->lock); }

/* Writes the oldest waiting observation to the store, whose lock is held; 0, or an error, after which it still waits. */
static int encode_oldest(guarded *g) {
    queue *q = g->q;
    const accepted item = q->items[q->head % q->depth];
    int64_t number = write_observation(&g->s, item.stream, slot_of(g, q->head), item.known, 0);
    __atomic_store_n(&q->stuck, number < 0, __ATOMIC_RELEASE);
    if (number < 0) return (int)number;
    __atomic_store_n(&q->head, q->head + 1, __ATOMIC_RELEASE);
    return 0;
}

/* Writes all that waits; the store's lock is held. */
static int encode_all(guarded *g) {
    int problem = 0;
    while (g->q && !problem && g->q->head < queue_tail(g->q)) problem = encode_oldest(g);
    return problem;
}

/* ---- what the encoder does ---- */

static int encode_some(job *j) {
    guarded *g = (guarded *)j;
    for (int i = 0; i < 100 && __atomic_load_n(&g->wanted, __ATOMIC_SEQ_CST); i++) sched_yield();
    pthread_mutex_lock(&g->lock);
    int more = g->q->head < queue_tail(g->q) && !encode_oldest(g) && g->q->head < queue_tail(g->q);
    pthread_mutex_unlock(&g->lock);
    return more;
}

/* Whether half of the slots are taken: calling a thread for each observation would cost more than encoding many. */
static int many_wait(job *j) {
    const queue *q = ((guarded *)j)->q;
    return !__atomic_load_n(&q->stuck, __ATOMIC_ACQUIRE) && queue_tail(q) - queue_head(q) >= (q->depth + 1) / 2;
}

/* ---- accepting; `accepting` is held ---- */

static void free_queue(queue *q) {
    if (!q) return;
    free(q->slots); free(q->items); free(q->length); free(q->last); free(q);
}

static uint64_t queue_bytes(const store *s, const queue *q) {
    return q ? q->depth * (observation_bytes(s) + sizeof *q->items) + s->n_streams * (sizeof *q->length + sizeof *q->last) + sizeof *q : 0;
}

/* Begins a queue; without memory for one there is none. */
static void open_queue(guarded *g) {
    size_t each = observation_bytes(&g->s), rows = 2 * (size_t)g->s.n_streams, depth = QUEUE_BYTES / each;
    if (depth < rows) depth = rows;
    if (depth > MOST_SLOTS && depth > rows) depth = rows > MOST_SLOTS ? rows : MOST_SLOTS;
    if (depth * each > MOST_QUEUE_BYTES) depth = MOST_QUEUE_BYTES / each;
    if (g->queue_bytes && depth * each > g->queue_bytes) depth = g->queue_bytes / each;
    if (depth < 4 && !g->queue_bytes) depth = 4;        /* only where a test asks for it */
    queue *q = depth < 4 ? NULL : take_zeroed(1, sizeof *q);
    if (q) {
        q->depth = (uint32_t)depth;
        q->slots = take(depth * each); q->items = take(depth * sizeof *q->items);
        q->length = take(g->s.n_streams * sizeof *q->length); q->last = take_zeroed(g->s.n_streams, sizeof *q->last);
    }
    if (!q || !q->slots || !q->items || !q->length || !q->last) { free_queue(q); g->queueing = NEVER; return; }
    lock_store(g);
    memcpy(q->length, g->s.length, g->s.n_streams * sizeof *q->length);
    g->q = q;
    unlock_store(g);
}

/* Ends the queue once all of it is encoded; 0, or an error, after which it is still there. */
static int close_queue(guarded *g) {
    if (!g->q) return 0;
    take_back(&g->j);
    lock_store(g);
    int problem = encode_all(g);
    if (!problem) { free_queue(g->q); g->q = NULL; }
    unlock_store(g);
    g->timed = g->slow = 0;
    return problem;
}

/* Accepts an observation and returns its number, or an error. */
static int64_t accept(guarded *g, uint32_t stream, const unsigned char *obs) {
    queue *q = g->q;
    const store *s = &g->s;
    uint64_t tail = q->tail;
    uint32_t before = q->length[stream];
    int known = 0;
    if (q->last[stream] && tail - (q->last[stream] - 1) <= q->depth) known = known_frames(s, obs, slot_of(g, q->last[stream] - 1));
    else if (before) {                  /* all of this stream is encoded: its last observation was overwritten */
        lock_store(g);
        known = known_frames_written(s, stream, obs);
        unlock_store(g);
    }
    if (known == SAME) return (int64_t)before - 1;
    if (before >= BASE - 1 - s->n_stack) { errno = EFBIG; return SYSTEM_ERROR; }
    while (tail - queue_head(q) >= q->depth) {
        lock_store(g);
        int problem = tail - q->head >= q->depth ? encode_oldest(g) : 0;
        unlock_store(g);
        if (problem) return problem;
    }
    uint32_t number = before + s->n_stack - (uint32_t)known - 1;
    memcpy(slot_of(g, tail), obs, observation_bytes(s));
    q->items[tail % q->depth] = (accepted){stream, number, (uint32_t)known};
    q->length[stream] = number + 1; q->last[stream] = tail + 1;
    __atomic_store_n(&q->tail, tail + 1, __ATOMIC_SEQ_CST);
    if (many_wait(&g->j)) hand_over(&g->j);
    return number;
}

/* Adds an observation and returns its number, or an error: through the queue where there is one. */
static int64_t put(guarded *g, uint32_t stream, const unsigned char *obs) {
    if (g->q) return accept(g, stream, obs);
    int timing = g->queueing == IF_IT_PAYS;
    uint64_t began = timing ? nanoseconds() : 0;
    lock_store(g);
    uint32_t before = g->s.length[stream];
    int64_t number = g->s.sealed ? SEALED : append_observation(&g->s, stream, obs);
    unlock_store(g);
    if (number < (int64_t)before) return number;        /* an error, or nothing new */
    if (timing) {
        g->slow += nanoseconds() - began > WORTH_NS + observation_bytes(&g->s) / 4;
        timing = ++g->timed == WINDOW;
        if (timing && 2 * g->slow < WINDOW) g->timed = g->slow = 0;
    }
    if ((timing && g->timed) || g->queueing == ALWAYS) open_queue(g);
    return number;
}

/* ---- reading; the store's lock is held ---- */

/* Returns an observation that waits, NULL for any other. */
static const unsigned char *waiting_observation(const guarded *g, uint32_t stream, uint32_t number) {
    const queue *q = g->q;
    if (!q) return NULL;
    for (uint64_t place = queue_tail(q); place-- > q->head;) {
        const accepted *item = &q->items[place % q->depth];
        if (item->stream == stream && item->number == number) return slot_of(g, place);
    }
    return NULL;
}

/* ---- life ---- */

/* Sets up what guards a zeroed store; queueing pays with more than one processor only. */
static void open_guard(guarded *g, int queueing, size_t queue_bytes) {
    pthread_mutex_init(&g->accepting, NULL); pthread_mutex_init(&g->lock, NULL);
    g->j = (job){encode_some, many_wait, NULL, 0};
    size_t each = observation_bytes(&g->s);
    if (queueing == IF_IT_PAYS && (each < SMALLEST_QUEUED || 4 * each > MOST_QUEUE_BYTES || !several_processors())) queueing = NEVER;
    g->queueing = queueing; g->queue_bytes = queue_bytes;
}

/* Ends a store that nobody uses any more; what waits is gone with it. */
static void close_guard(guarded *g) {
    if (g->q) take_back(&g->j);
    free_queue(g->q);
    close_store(&g->s);
    pthread_mutex_destroy(&g->accepting); pthread_mutex_destroy(&g->lock);
}
#endif
