/* How a store is written: literals kept once, changes, frames, observations, spilling. No Python here. See _core.c. */
#ifndef LEGROOM_STORE_H
#define LEGROOM_STORE_H
#include "_records.h"

/* ---- literals, stored once whatever their stream and time ---- */

static uint64_t all_arenas(const store *s) { return (uint64_t)s->n_arenas * ARENA_BYTES; }

/* Makes room for one more entry: 0, 1 when an old entry should be replaced instead, NO_MEMORY.
 * Where content does not repeat, a growing table would cost more than it saves: it may take a 64th of the records. */
static int grow_table(store *s) {
    if (2 * (s->table_used + 1) <= s->table_size) return 0;
    if (s->table_size && s->hits < s->inserts / 16 && 64ull * 2 * s->table_size * sizeof(slot) > all_arenas(s)) return 1;
    uint32_t size = s->table_size ? 2 * s->table_size : 64;
    slot *table = take(size * sizeof *table);
    if (!table) return NO_MEMORY;
    memset(table, 0xFF, size * sizeof *table);
    for (uint32_t i = 0; i < s->table_size; i++) {
        slot old = s->table[i];
        if (old.ref == NONE) continue;
        uint32_t at = old.tag & (size - 1);
        while (table[at].ref != NONE) at = (at + 1) & (size - 1);
        table[at] = old;
    }
    free(s->table); s->table = table; s->table_size = size;
    s->hits = s->inserts = 0;
    return 0;
}

static uint32_t tag_of(const unsigned char *bytes, uint32_t size) { return (uint32_t)(hash_bytes(bytes, size) >> 32); }

static void remember(store *s, uint32_t tag, uint32_t ref, int replace) {
    uint32_t at = tag & (s->table_size - 1);
    if (!replace) { while (s->table[at].ref != NONE && s->table[at].ref != ref) at = (at + 1) & (s->table_size - 1); }
    if (s->table[at].ref == NONE) {
        if (4ull * (s->table_used + 1) > 3ull * s->table_size) return;      /* looking ends at an entry that is free */
        s->table_used++;
    }
    s->table[at] = (slot){tag, ref}; s->inserts++;
}

/* Whether to compress, after so many in a row that it did not help: noise is tried only now and then. */
static inline int worth_trying(uint32_t futile) { return futile < 16 || futile % (futile < 1024 ? 64 : 1024) == 0; }

/* Bytes of a page in few bits, and how small anything else must be to be written instead: in small pages, what has to be
 * found and put together costs more time than it saves memory. */
typedef struct { width w; uint32_t size, most; } narrowed;
static narrowed narrow_page(const store *s, const unsigned char *bytes, uint32_t size) {
    uint32_t most = size - size / 8;
    width w = s->compress ? find_width(bytes, size) : (width){0, 0};
    uint32_t narrow = w.unit ? narrow_bytes(w, size) : size;
    if (narrow >= most) return (narrowed){{0, 0}, size, most};
    return (narrowed){w, narrow, size <= SMALL_FRAME ? narrow / 2 : narrow - narrow / 4};
}

/* Returns the reference of a literal with these bytes, writing it if it is new; NONE without memory. */
static uint32_t intern(store *s, const unsigned char *bytes, uint32_t size, narrowed narrow) {
    if (is_constant(bytes, size)) return add_record(s, CONST, bytes, 4);    /* smaller than an entry in the table */
    int replace = grow_table(s);
    if (replace < 0) return NONE;
    uint32_t tag = tag_of(bytes, size);
    for (uint32_t at = tag & (s->table_size - 1); s->table[at].ref != NONE; at = (at + 1) & (s->table_size - 1)) {
        if (s->table[at].tag != tag) continue;
        if (!load_base(s, s->table[at].ref, s->scratch, size, s->room) && !memcmp(s->scratch, bytes, size)) {
            s->hits++;
            return s->table[at].ref;
        }
    }
    header h = {RAW, size};
    const void *payload = bytes;
    if (s->compress) {
        uint32_t packed = worth_trying(s->futile) ? lz_compress(bytes, 0, size, s->scratch, narrow.most) : 0;
        s->futile = packed ? 0 : s->futile + 1;
        if (packed) h = (header){LZ4, packed};
        else if (narrow.w.unit) { make_narrow(bytes, size, narrow.w, s->scratch); h = (header){NARROW, narrow.size}; }
        if (h.kind != RAW) payload = s->scratch;
    }
    uint32_t ref = add_record(s, h.kind, payload, h.size);
    if (ref == NONE) return NONE;
    if (!s->literals++ && size <= SMALL_FRAME) s->literal_size = h.size;    /* a large one may begin with an empty screen */
    else s->literal_size += (uint32_t)((int32_t)(h.size - s->literal_size) / 16);
    remember(s, tag, ref, replace);
    return ref;
}

/* ---- writing ---- */

static int push_version(store *s, page *g, uint32_t time, uint32_t ref) {
    if (g->length == g->capacity) {
        uint32_t capacity = g->capacity + g->capacity / 2 + 1;
        version *grown = resize(g->versions, capacity * sizeof *grown);
        if (!grown) return NO_MEMORY;
        s->nbytes_versions += (uint64_t)(capacity - g->capacity) * sizeof *grown;
        g->versions = grown; g->capacity = capacity;
    }
    g->versions[g->length++] = (version){time, ref};
    return 0;
}

/* What decoding a move costs, for its page and for its bytes; as twice as much where a store is to be read quickly. */
static inline uint32_t move_work(const store *s, uint32_t size) { return size / MOVE_WORK << s->quick; }
static inline uint32_t move_bytes(const store *s, uint32_t bytes) { return (2 * bytes / 3) << s->quick; }

/* Work that decoding a change costs, in bytes of copying; finding a small one costs more than applying it. */
static inline uint32_t change_work(const store *s, header h, uint32_t size) {
    if (h.kind == MOVE) return move_work(s, size) + move_bytes(s, h.size);
    return h.kind != PATCH ? h.size + FINDING : size / PATCH_WORK + (size <= SMALL_PATCHED ? PATCH_FINDING : 0);
}

/* Whether nearly everything has changed, by a sample: then no delta is worth trying. */
static int mostly_new(const unsigned char *old, const unsigned char *new, uint32_t words) {
    uint32_t step = words / SAMPLED, differing = 0;
    if (!step) return 0;
    for (uint32_t i = 0; i < SAMPLED; i++) differing += load32(old + 4 * i * step) != load32(new + 4 * i * step);
    return differing > SAMPLED - SAMPLED / 16;
}

/* Writes the cheapest of DELTA, BYTES, MOVE and PATCH if it beats a new literal; NONE if it does not, or without memory. */
static uint32_t write_change(store *s, const page *g, const unsigned char *bytes, uint32_t size, narrowed narrow, header *h) {
    uint32_t most = size <= SMALL_FRAME ? narrow.most : size - size / 8, literal = s->literal_size;
    if (size <= SMALL_FRAME) literal -= literal / 8;        /* two records are found and put together: that must be worth it */
    uint32_t budget = literal < most ? literal : most, left = CHAIN_LIMIT * size - g->chain;
    uint32_t delta = mostly_new(g->now, bytes, size / 4) ? 0 : make_delta(g->now, bytes, size / 4, s->tokens, budget < left ? budget : left);
    *h = (header){DELTA, delta};
    unsigned char *moved = s->room + wide_at(s);            /* which only reading uses otherwise */
    int quick = narrow.w.unit && size <= SMALL_FRAME;     /* a patch would be several times slower to read */
    if (s->compress && !quick && (!delta || delta > size / 16) && worth_trying(s->patch_futile)) {
        uint32_t limit = delta ? delta : budget, move = 0, patch = 0;
        if (s->mover && size >= SMALLEST_MOVED && left > move_work(s, size)) {
            uint32_t p = (uint32_t)((size_t)(g - s->pages) % s->n_pages), most_moved = (left - move_work(s, size)) * 3 / (s->quick ? 4 : 2);
            move = make_move(s->mover, g->now, bytes, size, s->row, p * s->page_bytes, moved, limit < most_moved ? limit : most_moved, s->pair);
        }
        if ((!move || move > size / 8) && left >= size / PATCH_WORK) {
            memcpy(s->pair, g->now, size); memcpy(s->pair + size, bytes, size);
            patch = lz_compress(s->pair, size, 2 * size, s->scratch, move ? move - move / 4 : limit);
        }
        if (patch || move) *h = patch ? (header){PATCH, patch} : (header){MOVE, move};
        if (patch || move) s->patch_futile = 0;
        else if (!delta) s->patch_futile++;
    } else if (s->compress && !quick && !delta) s->patch_futile++;
    if (h->kind == DELTA && delta) {
        uint32_t few = make_bytes(g->now, bytes, size, s->scratch, delta - delta / 8);
        if (few) *h = (header){BYTES, few};
    }
    return h->size ? add_record(s, h->kind, h->kind == DELTA ? (const void *)s->tokens : h->kind == MOVE ? moved : s->scratch, h->size) : NONE;
}

/* Adds a version of one page whose bytes have changed; `now` stays as it is until the whole frame is written. */
static int write_page(store *s, page *g, const unsigned char *bytes, uint32_t size, uint32_t time) {
    header h = {RAW, 0};
    uint32_t ref = NONE;
    narrowed narrow = narrow_page(s, bytes, size);
    if (g->now && g->chain < CHAIN_LIMIT * size) ref = write_change(s, g, bytes, size, narrow, &h);
    if (ref != NONE) {
        if (push_version(s, g, time, ref)) return NO_MEMORY;
        g->chain += change_work(s, h, size);
        return 0;
    }
    ref = intern(s, bytes, size, narrow);
    if (ref == NONE || push_version(s, g, time | BASE, ref)) return NO_MEMORY;
    g->chain = 0;
    return 0;
}

static uint32_t chain_of(const store *s, const page *g, uint32_t size) {
    uint32_t chain = 0;
    header h;
    for (uint32_t i = g->length; i-- && !(g->versions[i].time & BASE);)
        if (find_record(s, g->versions[i].ref, &h, s->room)) chain += change_work(s, h, size);
    return chain;
}

/* Returns a RAW record's bytes in memory, NULL for any other. */
static unsigned char *raw_record(const store *s, uint32_t ref) {
    uint64_t at = (uint64_t)ref * s->unit;
    unsigned char *bytes = s->arenas[at / ARENA_BYTES].bytes;
    if (!bytes) return NULL;
    bytes += at % ARENA_BYTES;
    return unpack(bytes).kind == RAW ? bytes + 4 : NULL;
}

static int ensure_spare(store *s, page *g) {
    if (g->spare) return 0;
    if (!(g->spare = take(s->page_bytes))) return NO_MEMORY;
    s->nbytes_now += s->page_bytes;
    return 0;
}

/* Makes `now` the page's current bytes: the RAW record itself where there is one, a private copy otherwise. */
static void settle_page(store *s, page *g, const unsigned char *bytes, uint32_t size) {
    unsigned char *raw = raw_record(s, g->versions[g->length - 1].ref);
    g->now = raw ? raw : g->spare;
    if (!raw) memcpy(g->now, bytes, size);
}

/* Moves the oldest arenas to disk until at most `keep` bytes are in memory; never the one being written. */
static int spill_arenas(store *s, uint64_t keep) {
    while (s->n_arenas - s->first_resident > (s->sealed ? 0u : 1u) && (uint64_t)(s->n_arenas - s->first_resident) * ARENA_BYTES > keep) {
        arena *a = &s->arenas[s->first_resident];
        off_t at = (off_t)s->first_resident * (off_t)ARENA_BYTES;
        if (!a->sums && !(a->sums = take(blocks_of(a->used) * sizeof *a->sums + 1))) return NO_MEMORY;
        for (uint32_t done = 0, n; done < a->used; done += n) {
            n = a->used - done < BLOCK ? a->used - done : BLOCK;
            a->sums[done / BLOCK] = block_sum(a->bytes + done, n);
        }
        for (uint32_t done = 0; done < a->used;) {
            ssize_t n = pwrite(s->fd, a->bytes + done, a->used - done, at + done);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) { if (!n) errno = ENOSPC; return SYSTEM_ERROR; }
            done += (uint32_t)n;
        }
        for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
            page *g = &s->pages[i];
            if (!g->now || g->now < a->bytes || g->now >= a->bytes + ARENA_BYTES) continue;
            if (ensure_spare(s, g)) return NO_MEMORY;
            memcpy(g->spare, g->now, page_size(s, (uint32_t)(i % s->n_pages)));
            g->now = g->spare;
        }
        unmap_bytes(a->bytes, a->mapped);
        a->bytes = NULL;
        s->first_resident++;
    }
    return 0;
}

/* Drops a stream's newest frames down to `length`; their records stay behind, unused. */
static void forget_frames(store *s, uint32_t stream, uint32_t length, int settled) {
    page *pages = s->pages + (size_t)stream * s->n_pages;
    for (uint32_t p = 0; p < s->n_pages; p++) {
        page *g = &pages[p];
        uint32_t before = g->length;
        while (g->length && (g->versions[g->length - 1].time & ~BASE) >= length) g->length--;
        if (g->length == before) continue;
        g->chain = chain_of(s, g, page_size(s, p));
        if (settled) g->stale = 1;           /* `now` may show a frame that is gone */
    }
    s->length[stream] = length;
}

static inline size_t coded_bytes(const store *s) { return (size_t)s->n_data * s->page_bytes + TABLE_BYTES; }

/* Puts a frame with colours into `coded`, as pages hold it; returns whether these are places of few colours. */
static int code_frame(store *s, uint32_t stream, const unsigned char *frame) {
    palette *c = &s->palettes[stream];
    uint32_t pixels = s->frame_bytes / PARTS;
    size_t data = (size_t)s->n_data * s->page_bytes;
    int few = find_colours(c, frame, pixels, s->colours, s->coded);
    if (few) memset(s->coded + pixels, 0, (s->length[stream] ? placed_bytes(s) : data) - pixels);
    else memcpy(s->coded, frame, s->frame_bytes);       /* bytes of padding are always zero */
    uint32_t count = few ? c->count : 0;
    memcpy(c->table, &count, 4);
    memcpy(s->coded + data, c->table, TABLE_BYTES);
    return few;
}

/* Appends a frame (padded to whole words) and returns its number, or an error. With `reuse`, a frame that equals the
 * one before it is not counted again. */
static int64_t append_frame(store *s, uint32_t stream, const unsigned char *frame, int reuse) {
    page *pages = s->pages + (size_t)stream * s->n_pages;
    uint32_t time = s->length[stream], changed = 0;
    if (time >= BASE - 1) { errno = EFBIG; return SYSTEM_ERROR; }
    int few = s->colours && code_frame(s, stream, frame);
    if (s->colours) frame = s->coded;
    s->row = few && s->colours == IN_PIXELS ? s->row_bytes / PARTS : s->row_bytes;
    for (uint32_t p = 0; p < s->n_pages; p++) {
        page *g = &pages[p];
        int hidden = few && p >= s->n_placed && p < s->n_data;     /* nobody reads it in this frame: only a first version is needed */
        if (hidden && time) continue;
        const unsigned char *bytes = frame + (size_t)p * s->page_bytes;
        uint32_t size = page_size(s, p);
        if (g->stale) { g->now = NULL; g->stale = 0; }      /* after a failure: write the page anew, from nothing */
        size_t shown = p < s->n_data ? s->frame_bytes - (size_t)p * s->page_bytes : size;
        if (g->now && !memcmp(g->now, bytes, shown < size ? shown : size)) continue;    /* a dump may pad anyhow */
        if (write_page(s, g, bytes, size, time)) goto undo;
        if (hidden) { g->stale = 1; continue; }
        if (!raw_record(s, g->versions[g->length - 1].ref) && ensure_spare(s, g)) goto undo;
        s->changed[changed++] = p;
    }
    if (!changed && reuse && time) return (int64_t)time - 1;
    for (uint32_t i = 0; i < changed; i++) {
        uint32_t p = s->changed[i];
        settle_page(s, &pages[p], frame + (size_t)p * s->page_bytes, page_size(s, p));
    }
    return s->length[stream]++;
undo:
    forget_frames(s, stream, time, 0);
    return NO_MEMORY;
}

/* ---- observations: frames stacked along one axis ---- */

/* Copies `outer` pieces of `inner` bytes each; the usual small pieces get loops of their own. */
static void copy_pieces(unsigned char *to, size_t to_step, const unsigned char *from, size_t from_step, uint32_t inner, uint32_t outer) {
#define PIECES(n) for (uint32_t o = 0; o < outer; o++) memcpy(to + o * to_step, from + o * from_step, n); break
    switch (inner) {
    case 1: PIECES(1);
    case 2: PIECES(2);
    case 3: PIECES(3);
    case 4: PIECES(4);
    case 8: PIECES(8);
    default: PIECES(inner);
    }
#undef PIECES
}

static inline uint32_t place_of(const store *s, uint32_t k) { return s->newest_first ? s->n_stack - 1 - k : k; }

/* Whether all frames of `obs` but the newest are those of `before` but the oldest, byte for byte. */
static int follows(const store *s, const unsigned char *obs, const unsigned char *before) {
    size_t inner = s->frame_bytes / s->outer, row = s->n_stack * inner;
    size_t here = s->newest_first ? inner : 0, there = s->newest_first ? 0 : inner;
    for (uint32_t o = 0; o < s->outer; o++) if (memcmp(obs + o * row + here, before + o * row + there, row - inner)) return 0;
    return 1;
}

/* What an observation is beside the last one of its stream: the same, or how many of its frames are known already. */
#define SAME (-1)
static int known_frames(const store *s, const unsigned char *obs, const unsigned char *last) {
    if (!memcmp(obs, last, (size_t)s->n_stack * s->frame_bytes)) return SAME;
    return s->n_stack > 1 && follows(s, obs, last) ? (int)s->n_stack - 1 : 0;
}

/* The same, beside the last one that was written. */
static int known_frames_written(const store *s, uint32_t stream, const unsigned char *obs) {
    if (!s->length[stream]) return 0;
    if (s->tail) return known_frames(s, obs, s->tail + stream * (size_t)s->n_stack * s->frame_bytes);
    const page *pages = s->pages + (size_t)stream * s->n_pages;
    for (uint32_t p = 0; p < s->n_pages; p++) {
        size_t at = (size_t)p * s->page_bytes, left = s->frame_bytes - at, size = page_size(s, p);
        if (pages[p].stale || !pages[p].now || memcmp(pages[p].now, obs + at, left < size ? left : size)) return 0;
    }
    return SAME;
}

/* Appends what is not known of an observation and returns the number of its newest frame, or an error. With `reuse`, a
 * single frame that equals the one before it is not counted again. */
static int64_t write_observation(store *s, uint32_t stream, const unsigned char *obs, uint32_t known, int reuse) {
    uint32_t n = s->n_stack, inner = s->frame_bytes / s->outer, before = s->length[stream];
    size_t each = (size_t)n * s->frame_bytes;
    int64_t number = NO_MEMORY;
    for (uint32_t k = known; k < n; k++) {
        const unsigned char *frame = obs + (size_t)place_of(s, k) * inner;
        if (s->assembled) {
            copy_pieces(s->assembled, inner, frame, (size_t)n * inner, inner, s->outer);
            frame = s->assembled;
        }
        number = append_frame(s, stream, frame, reuse);
        if (number < 0) {
            if (s->length[stream] > before) forget_frames(s, stream, before, 1);
            return number;
        }
    }
    if (s->tail) memcpy(s->tail + stream * each, obs, each);
    return number;
}

/* Appends an observation and returns the number of its newest frame, or an error. */
static int64_t append_observation(store *s, uint32_t stream, const unsigned char *obs) {
    if (!s->tail) return write_observation(s, stream, obs, 0, 1);
    int known = known_frames_written(s, stream, obs);
    return known == SAME ? (int64_t)s->length[stream] - 1 : write_observation(s, stream, obs, (uint32_t)known, 0);
}

static size_t reader_room(const store *s) {
    size_t frames = s->outer > 1 ? ((size_t)s->n_stack + 1) * s->frame_bytes : 0;
    return room_bytes(s) + frames + ((size_t)s->n_stack + 1) * sizeof(unsigned char *) + 16 + colour_room(s, s->n_stack + 1);
}

/* Writes the observation whose newest frame is `number` to `out` and, where `next` is given, the one that ends with
 * the following frame to `next`, decoding the frames they share only once. `room`: reader_room bytes. */
static int read_observations(const store *s, uint32_t stream, uint32_t number, unsigned char *out, unsigned char *next, unsigned char *room) {
    uint32_t n = s->n_stack, count = n + (next ? 1 : 0), inner = s->frame_bytes / s->outer;
    unsigned char **places = (unsigned char **)(((uintptr_t)room + 15) & ~(uintptr_t)15);
    unsigned char *rest = (unsigned char *)(places + n + 1), *frames = rest + room_bytes(s);
    int problem;
    for (uint32_t k = 0; k < count; k++)
        places[k] = s->outer > 1 ? frames + (size_t)k * s->frame_bytes
                  : k < n ? out + (size_t)place_of(s, k) * inner : next + (size_t)place_of(s, n - 1) * inner;
    unsigned char *more = frames + (s->outer > 1 ? ((size_t)n + 1) * s->frame_bytes : 0);
    if ((problem = decode_frames(s, stream, number - (n - 1), count, places, rest, more))) return problem;
    if (s->outer > 1) {
        for (uint32_t k = 0; k < n; k++) {
            copy_pieces(out + (size_t)place_of(s, k) * inner, (size_t)n * inner, places[k], inner, inner, s->outer);
            if (next) copy_pieces(next + (size_t)place_of(s, k) * inner, (size_t)n * inner, places[k + 1], inner, inner, s->outer);
        }
    } else if (next && n > 1) {
        size_t shared = (size_t)(n - 1) * inner;
        memcpy(next + (s->newest_first ? inner : 0), out + (s->newest_first ? 0 : inner), shared);
    }
    return 0;
}

/* ---- life ---- */

static void empty_store(store *s) {
    if (s->pages)
        for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) { free(s->pages[i].versions); free(s->pages[i].spare); }
    for (uint32_t i = 0; i < s->n_arenas; i++) {
        if (s->arenas[i].bytes) unmap_bytes(s->arenas[i].bytes, s->arenas[i].mapped);
        free(s->arenas[i].sums); free(s->arenas[i].held);
    }
    if (s->ready) unmap_bytes(s->ready, ARENA_BYTES);
    free(s->arenas); free(s->table);
    if (s->pages) memset(s->pages, 0, (size_t)s->n_streams * s->n_pages * sizeof *s->pages);
    if (s->length) memset(s->length, 0, s->n_streams * sizeof *s->length);
    s->arenas = NULL; s->table = NULL; s->ready = NULL;
    s->n_arenas = s->cap_arenas = s->first_resident = s->table_size = s->table_used = s->hits = s->inserts = 0;
    s->nbytes_versions = s->nbytes_now = s->touched = 0;
    s->futile = s->patch_futile = s->literals = 0; s->literal_size = s->page_bytes;
    memset(s->payload, 0, sizeof s->payload); memset(s->records, 0, sizeof s->records);
    if (s->palettes) memset(s->palettes, 0, s->n_streams * sizeof *s->palettes);
}

/* Moves the arenas in memory from `first` on to one piece of just their size; without memory they stay where they are. */
static void pack_arenas(store *s, uint32_t first) {
    if (s->ready) unmap_bytes(s->ready, ARENA_BYTES);
    s->ready = NULL;
    if (first < s->first_resident) first = s->first_resident;
    if (first >= s->n_arenas) return;
    uint32_t n = s->n_arenas - first;
    size_t last = (s->arenas[s->n_arenas - 1].used + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1);
    if ((n - 1) * ARENA_BYTES + last < HUGE_PAGE) {         /* no huge page would be used: only what is not needed goes */
        arena *a = &s->arenas[s->n_arenas - 1];
        if (a->mapped > last) { unmap_bytes(a->bytes + last, a->mapped - last); a->mapped = (uint32_t)last; }
        return;
    }
    unsigned char *bytes = map_for_huge_pages((n - 1) * ARENA_BYTES + last);
    if (!bytes) return;
    for (uint32_t i = 0; i < n; i++) {
        arena *a = &s->arenas[first + i];
        memcpy(bytes + i * ARENA_BYTES, a->bytes, a->used);
        unmap_bytes(a->bytes, a->mapped);
        *a = (arena){bytes + i * ARENA_BYTES, a->used, (uint32_t)(i + 1 < n ? ARENA_BYTES : last), a->sums, NULL, 0};
    }
}

static void free_writer(store *s) {
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) { free(s->pages[i].spare); s->pages[i].spare = s->pages[i].now = NULL; }
    free(s->table); free(s->scratch); free(s->pair); free(s->room); free(s->tokens); free(s->changed); free(s->assembled); free(s->tail);
    free(s->palettes); free(s->coded); free(s->mover);
    s->palettes = NULL; s->mover = NULL; s->table = NULL; s->scratch = s->pair = s->room = s->assembled = s->tail = s->coded = NULL; s->tokens = s->changed = NULL;
    s->table_size = s->table_used = 0; s->nbytes_now = 0; s->sealed = 1;
}

/* Gives back what only writing needs: from now on the store is only read. */
static void seal_store(store *s) {
    free_writer(s);
    if (s->n_pages == 1) pack_arenas(s, 0);                 /* small frames gain from huge pages */
    else if (s->n_arenas) pack_arenas(s, s->n_arenas - 1);  /* the rest of a huge page would stay resident */
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
        page *g = &s->pages[i];
        version *fitted = g->length && g->length < g->capacity ? resize(g->versions, g->length * sizeof *fitted) : NULL;
        if (!fitted) continue;
        s->nbytes_versions -= (uint64_t)(g->capacity - g->length) * sizeof *fitted;
        g->versions = fitted; g->capacity = g->length;
    }
}

static void close_store(store *s) {
    if (!s->pages) s->n_streams = 0;        /* opening failed half-way */
    free_writer(s);
    empty_store(s);
    free(s->pages); free(s->length);
}

/* Sets up a zeroed store, whose `colours` say how they lie; page_bytes 0 chooses. */
static int open_store(store *s, uint32_t n_streams, uint32_t frame_bytes, uint32_t n_stack, uint32_t outer, uint32_t page_bytes) {
    uint32_t rounded = (frame_bytes + 3) & ~3u;
    if (!page_bytes) page_bytes = rounded <= SINGLE_PAGE && !s->colours ? (rounded + 7) & ~7u : DEFAULT_PAGE;
    s->n_streams = n_streams; s->frame_bytes = frame_bytes; s->n_stack = n_stack; s->outer = outer; s->page_bytes = page_bytes;
    s->n_pages = (rounded + page_bytes - 1) / page_bytes;
    s->last_bytes = rounded - (s->n_pages - 1) * page_bytes;
    s->n_data = s->n_pages;
    if (s->colours) { s->n_pages++; s->n_placed = (frame_bytes / PARTS + page_bytes - 1) / page_bytes; }
    s->unit = frame_bytes <= SMALL_FRAME ? 4 : 8;
    s->padded = rounded != frame_bytes;
    s->literal_size = page_bytes;
    s->pages = take_zeroed((size_t)n_streams * s->n_pages, sizeof *s->pages);
    s->length = take_zeroed(n_streams, sizeof *s->length);
    s->scratch = take(page_bytes); s->pair = take(3 * (size_t)page_bytes); s->tokens = take((size_t)page_bytes + 8);
    s->room = take(room_bytes(s)); s->changed = take(s->n_pages * sizeof *s->changed);
    int assemble = outer > 1 || s->padded, has_tail = n_stack > 1 || s->colours, moves = page_bytes >= SMALLEST_MOVED;
    if (assemble) s->assembled = take_zeroed(1, rounded);
    if (moves) s->mover = take_zeroed(1, sizeof *s->mover);
    if (has_tail) s->tail = take((size_t)n_streams * n_stack * frame_bytes);
    if (s->colours) { s->palettes = take_zeroed(n_streams, sizeof *s->palettes); s->coded = take_zeroed(1, coded_bytes(s)); }
    return s->pages && s->length && s->scratch && s->pair && s->tokens && s->room && s->changed && (!assemble || s->assembled)
           && (!moves || s->mover) && (!has_tail || s->tail) && (!s->colours || (s->palettes && s->coded)) ? 0 : NO_MEMORY;
}
#endif
