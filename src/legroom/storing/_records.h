/* What a store holds and how it is read: arenas, records, versions of pages. No Python here. See _core.c. */
#ifndef LEGROOM_RECORDS_H
#define LEGROOM_RECORDS_H
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "_colours.h"
#include "_lz4.h"
#include "_move.h"
#include "_narrow.h"
#ifdef __SANITIZE_ADDRESS__     /* what no record has been written to must not be read either */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

#define ARENA_BYTES ((size_t)1 << 20)
#define HUGE_PAGE ((size_t)1 << 21)
#define SMALL_PAGE ((size_t)4096)
#define AHEAD ((uint32_t)1 << 16)       /* bytes made resident at once where records are large: one by one, pages take longer */
#define LARGE_RECORD 4096u
#define CHAIN_LIMIT 2u          /* pages' worth of changes before a page is written anew */
#define PATCH_WORK 4u           /* decoding a patch counts as this part of a page */
#define FINDING 512u            /* what finding a record costs, in bytes of copying */
#define SMALL_PATCHED 256u      /* in pages up to this size, finding a patch costs as much as decoding it: */
#define PATCH_FINDING 64u       /* three in a row instead of eight, which takes no more memory and is read faster */
#define MOVE_WORK 32u           /* decoding a move counts as this part of a page, and two thirds of its bytes */
#define MOST_MOVES 64u          /* that are decoded together */
#define SAMPLED 32u             /* words looked at before a delta is tried */
#define MANY_ARENAS 8u          /* a store of so many takes new ones in pairs, each a huge memory page: it comes much faster */
#define BASE 0x80000000u        /* marks a version that needs no earlier one */
#define NONE 0xFFFFFFFFu
#define MAX_PAGE_BYTES 32768u
#define SINGLE_PAGE 16384u      /* frames up to this size are one page */
#define DEFAULT_PAGE 4096u
#define SMALL_FRAME 2048u       /* frames up to this size have records at multiples of 4 bytes, others of 8 */
#define BLOCK 4096u             /* bytes of an arena on disk that have a checksum of their own */
#define HELD_BYTES ((uint64_t)64 << 20)     /* of a file that is read as needed, in memory, before all is let go */
enum { ABSENT, PRESENT, DAMAGED };          /* what is known of a block of such a file */
#define KIND_BITS 3
#define NO_MEMORY (-1)
#define SYSTEM_ERROR (-2)       /* errno says which */
#define MALFORMED (-3)
#define SEALED (-5)

enum kind { RAW, LZ4, CONST, DELTA, PATCH, NARROW, BYTES, MOVE, KINDS };

typedef struct { uint32_t time, ref; } version;
typedef struct {
    version *versions;
    uint32_t length, capacity;
    uint32_t chain;             /* work that decoding the last version costs beyond its base, in bytes of copying */
    uint32_t stale;             /* whether `now` is not the last version's bytes */
    unsigned char *now;         /* the page's current bytes: a private copy, or the RAW record itself */
    unsigned char *spare;       /* the private copy's memory, kept while `now` points into an arena */
} page;
typedef struct {
    unsigned char *bytes;
    uint32_t used, mapped;
    uint32_t *sums;             /* on disk: a checksum of each block */
    unsigned char *held;        /* in a file that is read as needed: of each block, whether its bytes are in memory */
    uint64_t at;                /* and where the arena begins in that file */
} arena;
typedef struct { uint32_t tag, ref; } slot;
typedef struct { uint32_t kind, size; } header;

typedef struct {
    uint32_t n_streams, n_pages, page_bytes, last_bytes, frame_bytes, unit;
    uint32_t n_stack, outer;    /* an observation is [outer][n_stack][frame_bytes / outer] */
    uint32_t row_bytes, row;    /* of a picture, where known, and as the frame being written has it */
    int colours;                /* how a frame's colours lie */
    uint32_t n_data, n_placed;  /* pages that hold a frame's bytes, or in the first n_placed the places of its colours; then the table */
    int newest_first, padded, compress, sealed;
    int quick;                  /* whether rows are read one by one and often: fewer changes in a row, more memory */
    int eager;                  /* whether it will surely grow large: huge memory pages from the start */
    uint32_t *length;           /* frames per stream */
    page *pages;                /* [stream][page] */
    arena *arenas; uint32_t n_arenas, cap_arenas;
    uint32_t touched;           /* bytes of the last arena that were made resident ahead of time */
    unsigned char *ready;       /* the other half of a huge memory page, for the next arena */
    int trimmed;                /* whether nothing beyond `used` of the last arena is resident */
    uint32_t first_resident;    /* arenas before this one are on disk */
    int fd;                     /* where arenas are spilled to, or -1 */
    int opened;                 /* one more than the file that arenas are read from as needed; 0: there is none */
    uint64_t held_bytes;        /* of it that are in memory */
    slot *table; uint32_t table_size, table_used;
    uint32_t hits, inserts;     /* of the table, since it last grew */
    uint64_t nbytes_versions, nbytes_now, payload[KINDS], records[KINDS];
    uint32_t literal_size, literals;    /* moving average of what a literal costs, in bytes, and how many were written */
    uint32_t futile, patch_futile;  /* literals and patches in a row that did not compress, or were not tried */
    unsigned char *scratch;     /* one page, compressed or decoded */
    unsigned char *pair;        /* a page before and after, or what finding a move needs: three */
    unsigned char *room;        /* what reading a record and decoding a page need, for the writer */
    uint32_t *tokens;           /* one page of delta tokens, worst case */
    uint32_t *changed;          /* pages that the frame being written changes */
    unsigned char *assembled;   /* one frame put together from an observation, zero-padded */
    unsigned char *tail;        /* the last observation of each stream, where frames are stacked or have colours */
    palette *palettes;          /* the colours of each stream */
    mover *mover;               /* what finding moves needs */
    unsigned char *coded;       /* one frame as pages hold it, where it has colours */
} store;

/* ---- memory: arenas come from mmap, so that untouched pages cost nothing and freed ones really go ---- */

#ifdef LEGROOM_FAIL_ALLOC
static int64_t fail_countdown;
static int must_fail(void) { return fail_countdown > 0 && --fail_countdown == 0; }
#else
static inline int must_fail(void) { return 0; }
#endif

static void *take(size_t n) { return must_fail() ? NULL : malloc(n ? n : 1); }
static void *take_zeroed(size_t n, size_t each) { return must_fail() ? NULL : calloc(n ? n : 1, each); }
static void *resize(void *p, size_t n) { return must_fail() ? NULL : realloc(p, n); }
static void unmap_bytes(unsigned char *p, size_t n) { if (!n) return; ASAN_UNPOISON_MEMORY_REGION(p, n); munmap(p, n); }
static unsigned char *map_bytes(size_t n) {
    void *p = must_fail() ? MAP_FAILED : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The same, so that huge memory pages can back it: finding small ones takes longer than copying a small frame. */
static unsigned char *map_for_huge_pages(size_t n) {
    unsigned char *bytes = map_bytes(n + HUGE_PAGE);
    if (!bytes) return NULL;
    size_t before = (size_t)(-(intptr_t)bytes) & (HUGE_PAGE - 1), after = HUGE_PAGE - before;
    if (before) unmap_bytes(bytes, before);
    bytes += before;
    if (after) unmap_bytes(bytes + n, after);
#ifdef MADV_HUGEPAGE
    madvise(bytes, n, MADV_HUGEPAGE);       /* only whole ones are used, so that nothing beyond `n` becomes resident */
#endif
    return bytes;
}

/* Whether arena i is half a huge page while it is written; small frames are packed into them only when complete. */
static inline int in_huge_pages(const store *s, uint32_t i) { return s->n_pages > 1 && (s->eager || i >= MANY_ARENAS); }

static unsigned char *map_arena(store *s) {
    unsigned char *bytes = s->ready;
    s->ready = NULL;
    if (bytes || !in_huge_pages(s, s->n_arenas)) return bytes ? bytes : map_bytes(ARENA_BYTES);
    if ((bytes = map_for_huge_pages(HUGE_PAGE))) s->ready = bytes + ARENA_BYTES;
    return bytes;
}

/* ---- records: a 32-bit header (kind, size), the payload, padding to the unit ---- */

static inline uint32_t page_size(const store *s, uint32_t p) { return p + 1 < s->n_data ? s->page_bytes : p < s->n_data ? s->last_bytes : TABLE_BYTES; }
static inline header unpack(const void *at) {
    uint32_t packed = load32(at);
    return (header){packed & ((1u << KIND_BITS) - 1), packed >> KIND_BITS};
}
/* What reading a record needs: from disk, the blocks that it lies in. */
static inline size_t record_room(const store *s) { return s->page_bytes + (s->fd < 0 ? 0 : 2 * (size_t)BLOCK); }
/* Beside it: two pages, a picture wider than a page on both sides, and copies that are taken from it. */
static inline size_t wide_at(const store *s) { return record_room(s) + 2 * (size_t)s->page_bytes; }
static inline size_t taken_at(const store *s) { return wide_at(s) + 3 * (size_t)s->page_bytes + 2 * SLACK; }
static inline size_t room_bytes(const store *s) { return taken_at(s) + s->page_bytes + SLACK; }
static inline uint32_t record_bytes(const store *s, uint32_t size) { return (3 + size + s->unit) / s->unit * s->unit; }

static int read_fully(int fd, void *to, size_t n, uint64_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) { if (!got) errno = EIO; return SYSTEM_ERROR; }
        done += (size_t)got;
    }
    return 0;
}

static inline uint32_t blocks_of(uint32_t bytes) { return (bytes + BLOCK - 1) / BLOCK; }
static inline uint32_t block_sum(const unsigned char *bytes, uint32_t n) { return (uint32_t)(hash_bytes(bytes, n) >> 32); }

/* Reads blocks first .. end-1 of an arena on disk and compares their checksums. */
static int read_blocks(const store *s, uint32_t i, uint32_t first, uint32_t end, unsigned char *to) {
    const arena *a = &s->arenas[i];
    uint32_t start = first * BLOCK, stop = end * BLOCK < a->used ? end * BLOCK : a->used;
    if (read_fully(s->fd, to, stop - start, (uint64_t)i * ARENA_BYTES + start)) return SYSTEM_ERROR;
    for (uint32_t at = start, n; at < stop; at += n) {
        n = stop - at < BLOCK ? stop - at : BLOCK;
        if (block_sum(to + (at - start), n) != a->sums[at / BLOCK]) { errno = EIO; return SYSTEM_ERROR; }
    }
    return 0;
}

/* Brings bytes `from` .. `to`-1 of an arena into memory, from the file that is read as needed. The file may change or be
 * cut at any time: it is read, not mapped, and what was read is compared with its checksum. Two threads may do so. */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;
static int hold_blocks(const store *s, const arena *a, uint32_t from, uint32_t to) {
    for (uint32_t b = from / BLOCK; b < blocks_of(to); b++) {
        uint32_t start = b * BLOCK, n = a->used - start < BLOCK ? a->used - start : BLOCK;
        pthread_mutex_lock(&holding);
        int known = a->held[b], problem = known == PRESENT ? 0 : read_fully(s->opened - 1, a->bytes + start, n, a->at + start);
        if (!problem && known != PRESENT && block_sum(a->bytes + start, n) != a->sums[b]) { errno = EIO; problem = SYSTEM_ERROR; }
        if (known == ABSENT) ((store *)(uintptr_t)s)->held_bytes += n;
        __atomic_store_n(&a->held[b], problem ? DAMAGED : PRESENT, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&holding);
        if (problem) return problem;
    }
    return 0;
}

static inline int hold(const store *s, const arena *a, uint32_t from, uint32_t to) {
    for (uint32_t b = from / BLOCK; b < blocks_of(to); b++)
        if (__atomic_load_n(&a->held[b], __ATOMIC_ACQUIRE) != PRESENT) return hold_blocks(s, a, from, to);
    return 0;
}

/* Lets go of what is in memory of a file that is read as needed. */
static void let_go(store *s) {
    for (uint32_t i = 0; i < s->n_arenas; i++) {
        madvise(s->arenas[i].bytes, s->arenas[i].mapped, MADV_DONTNEED);
        memset(s->arenas[i].held, ABSENT, blocks_of(s->arenas[i].used));
    }
    s->held_bytes = 0;
}

/* Returns a record's payload and header; from disk it is read into `room` (record_room bytes). NULL: errno says why. */
static const unsigned char *find_record(const store *s, uint32_t ref, header *h, unsigned char *room) {
    uint64_t at = (uint64_t)ref * s->unit;
    uint32_t i = (uint32_t)(at / ARENA_BYTES), offset = (uint32_t)(at % ARENA_BYTES), first = offset / BLOCK;
    const arena *a = &s->arenas[i];
    if (a->bytes) {
        if (a->held && hold(s, a, offset, offset + 4)) return NULL;
        *h = unpack(a->bytes + offset);
        if (h->size > a->used - offset - 4) { errno = EIO; return NULL; }      /* only in a file that nobody's save() wrote */
        if (a->held && hold(s, a, offset, offset + 4 + h->size)) return NULL;
        return a->bytes + offset + 4;
    }
    uint32_t known = blocks_of(a->used) - first < 2 ? blocks_of(a->used) : first + 2;       /* most records end there */
    if (read_blocks(s, i, first, known, room)) return NULL;
    *h = unpack(room + offset % BLOCK);
    if (h->size > s->page_bytes || h->size > a->used - offset - 4) { errno = EIO; return NULL; }
    uint32_t end = blocks_of(offset + 4 + h->size);
    if (end > known && read_blocks(s, i, known, end, room + (known - first) * BLOCK)) return NULL;
    return room + offset % BLOCK + 4;
}

/* Makes the memory resident that the next record and its like will be written to; a small store would waste much of it. */
static void touch_ahead(store *s, const arena *a, uint32_t need) {
#ifdef MADV_POPULATE_WRITE
    uint32_t from = a->used < s->touched ? s->touched : a->used & ~(uint32_t)(SMALL_PAGE - 1), end = a->used + need;
    if (s->n_arenas < 2 || need < LARGE_RECORD || end <= s->touched || in_huge_pages(s, s->n_arenas - 1)) return;
    end = (end + AHEAD - 1) & ~(AHEAD - 1);
    if (!madvise(a->bytes + from, end - from, MADV_POPULATE_WRITE)) s->touched = end;   /* before Linux 5.14: as ever */
#else
    (void)s; (void)a; (void)need;
#endif
}

/* Gives back what was made resident in vain, as far as is known now: also the rest of a huge memory page. */
static void trim(store *s) {
    arena *a = s->n_arenas > s->first_resident ? &s->arenas[s->n_arenas - 1] : NULL;
    size_t used = a ? (a->used + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1) : 0;
    if (s->ready) unmap_bytes(s->ready, ARENA_BYTES);
    s->ready = NULL;
    if (!a || a->mapped < ARENA_BYTES) return;
    if (used == ARENA_BYTES || !madvise(a->bytes + used, ARENA_BYTES - used, MADV_DONTNEED)) { s->touched = 0; s->trimmed = 1; }
}

/* Appends a record and returns its reference, or NONE without memory. */
static uint32_t add_record(store *s, uint32_t kind, const void *payload, uint32_t size) {
    uint32_t need = record_bytes(s, size);
    s->trimmed = 0;
    if (!s->n_arenas || s->arenas[s->n_arenas - 1].used + need > ARENA_BYTES) {
        if ((uint64_t)(s->n_arenas + 1) * (ARENA_BYTES / s->unit) >= NONE) return NONE;
        if (s->n_arenas == s->cap_arenas) {
            uint32_t capacity = s->cap_arenas ? 2 * s->cap_arenas : 4;
            arena *grown = resize(s->arenas, capacity * sizeof *grown);
            if (!grown) return NONE;
            s->arenas = grown; s->cap_arenas = capacity;
        }
        unsigned char *bytes = map_arena(s);
        if (!bytes) return NONE;
        ASAN_POISON_MEMORY_REGION(bytes, ARENA_BYTES);
        s->arenas[s->n_arenas++] = (arena){bytes, 0, ARENA_BYTES, NULL, NULL, 0};
        s->touched = 0;
    }
    arena *a = &s->arenas[s->n_arenas - 1];
    touch_ahead(s, a, need);
    uint32_t packed = kind | size << KIND_BITS;
    ASAN_UNPOISON_MEMORY_REGION(a->bytes + a->used, need);
    memcpy(a->bytes + a->used, &packed, 4);
    memcpy(a->bytes + a->used + 4, payload, size);
    uint32_t ref = (uint32_t)(((uint64_t)(s->n_arenas - 1) * ARENA_BYTES + a->used) / s->unit);
    a->used += need;
    s->payload[kind] += need; s->records[kind]++;
    return ref;
}

/* ---- decoding a page ---- */

/* Puts a base version's bytes into `out`. */
static int load_base(const store *s, uint32_t ref, unsigned char *out, uint32_t size, unsigned char *room) {
    header h;
    const unsigned char *payload = find_record(s, ref, &h, room);
    if (!payload) return SYSTEM_ERROR;
    switch (h.kind) {
    case RAW: if (h.size != size) return MALFORMED; memcpy(out, payload, size); return 0;
    case LZ4: return lz_decode(payload, h.size, out, size, NULL) ? MALFORMED : 0;
    case NARROW: return read_narrow(payload, h.size, out, size) ? MALFORMED : 0;
    case CONST: if (h.size != 4) return MALFORMED; fill_words(out, load32(payload), size); return 0;
    }
    return MALFORMED;
}

/* Returns the index of the page's last version not after `time`. A page that changes in every frame is found at once. */
static uint32_t find_version(const page *g, uint32_t time) {
    uint32_t low = 0, high = g->length;      /* versions[low] <= time < versions[high] */
    if (time < high) {                       /* times increase by at least one, so version i is not before time i */
        if ((g->versions[time].time & ~BASE) == time) return time;
        high = time + 1;
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((g->versions[middle].time & ~BASE) <= time) low = middle; else high = middle;
    }
    return low;
}

/* Returns a base's bytes where they can be read in place: a RAW record in memory. NULL otherwise. */
static const unsigned char *base_in_place(const store *s, uint32_t ref, uint32_t size) {
    uint64_t at = (uint64_t)ref * s->unit;
    const arena *a = &s->arenas[at / ARENA_BYTES];
    if (!a->bytes || a->used - at % ARENA_BYTES - 4 < size) return NULL;
    header h = unpack(a->bytes + at % ARENA_BYTES);
    return h.kind == RAW && h.size == size ? a->bytes + at % ARENA_BYTES + 4 : NULL;
}

/* Changes a page in place; 0, or -1 where that is no change of this page. */
static inline int apply_change(header h, unsigned char *page, uint32_t size, const unsigned char *change) {
    if (h.kind == BYTES) return apply_bytes(page, size, change, h.size);
    return h.kind == DELTA ? apply_delta(page, size, change, h.size) : -1;
}

/* Applies moves `first` and after, up to version `to`, to a page's bytes at `now`; the result is in `out`, which may be `now`.
 * All that are in memory are applied to one wide picture, which does not move: the page does. Returns how many, or an error. */
static int decode_moves(const store *s, const page *g, uint32_t first, uint32_t to, const unsigned char *now, unsigned char *out, uint32_t size,
                        unsigned char *room) {
    const unsigned char *payloads[MOST_MOVES];
    uint32_t sizes[MOST_MOVES], n = 0;
    int32_t moved[MOST_MOVES], sum = 0, low = 0, high = 0, most = (int32_t)size;
    for (int resident = 1; first + n <= to && n < MOST_MOVES && resident; n++) {
        uint32_t ref = g->versions[first + n].ref;
        header h;
        resident = s->arenas[(uint64_t)ref * s->unit / ARENA_BYTES].bytes != NULL;
        if (n && !resident) break;      /* from disk there is room for one */
        if (!(payloads[n] = find_record(s, ref, &h, room))) return SYSTEM_ERROR;
        if (h.kind != MOVE) break;
        int32_t shift = h.size < MOVE_HEAD ? 2 * most : shift_of(payloads[n]);
        if (shift > most || -shift > most) return MALFORMED;
        if (n && (sum + shift - low > most || high - sum - shift > most)) break;
        for (uint32_t line = 64; line < h.size; line += 64) fetch(payloads[n] + line);
        moved[n] = sum += shift; sizes[n] = h.size;
        low = sum < low ? sum : low; high = sum > high ? sum : high;
    }
    unsigned char *origin = room + wide_at(s) + SLACK + size;
    memcpy(origin + sum, now, size);
    for (uint32_t k = 0; k < n; k++)
        if (complete_move(origin + (sum - moved[k]), size, payloads[k], sizes[k], room + taken_at(s))) return MALFORMED;
    memcpy(out, origin, size);
    return (int)n;
}

/* Writes version `to` to `out`, from nothing (from == NONE) or from version `from`, whose bytes are at `source`, which
 * may be `out`. A patch is decoded from one place to another; places are chosen so that the last one ends in `out`. */
static int decode_page(const store *s, const page *g, uint32_t from, uint32_t to, const unsigned char *source, unsigned char *out,
                       uint32_t size, unsigned char *room) {
    uint32_t start = to;
    int problem;
    unsigned char *other = room + record_room(s);
    while (!(g->versions[start].time & BASE) && start != from) start--;
    const unsigned char *now = from != NONE && start == from ? source : start < to ? base_in_place(s, g->versions[start].ref, size) : NULL;
    if (!now) {
        if ((problem = load_base(s, g->versions[start].ref, out, size, room))) return problem;
        now = out;
    }
    for (uint32_t i = start + 1; i <= to; i++) {
        header h;
        const unsigned char *change = find_record(s, g->versions[i].ref, &h, room);
        if (!change) return SYSTEM_ERROR;
        if (h.kind == PATCH) {
            unsigned char *next = (to - i) & 1 ? other : out;
            if (next == now) next = next == out ? other : out;
            if (lz_decode(change, h.size, next, size, now)) return MALFORMED;
            now = next;
            continue;
        }
        if (h.kind == MOVE) {
            if ((problem = decode_moves(s, g, i, to, now, out, size, room)) < 0) return problem;
            i += (uint32_t)problem - 1;
            now = out;
            continue;
        }
        if (now != out) memcpy(out, now, size);
        now = out;
        if (apply_change(h, out, size, change)) return MALFORMED;
    }
    if (now != out) memcpy(out, now, size);
    return 0;
}

/* Writes pages `from` .. `to`-1 of frames first .. first+n-1 of a stream to the places `out[0..n-1]` (NULL: not that one), as far
 * as `shown` bytes go. */
static int decode_pages(const store *s, uint32_t stream, uint32_t first, uint32_t n, uint32_t from, uint32_t to, unsigned char *const *out,
                        size_t shown, unsigned char *room) {
    const page *pages = s->pages + (size_t)stream * s->n_pages;
    unsigned char *partial = room + record_room(s) + s->page_bytes;
    for (uint32_t p = from; p < to; p++) {
        const page *g = &pages[p];
        uint32_t size = page_size(s, p), at = NONE;
        size_t offset = (size_t)(p - from) * s->page_bytes;
        int whole = offset + size <= shown, problem;     /* else the last page has padding that `out` has not */
        unsigned char *previous = NULL;
        for (uint32_t k = 0; k < n; k++) {
            if (!out[k]) continue;
            uint32_t moment = first + k, version = at == NONE ? find_version(g, moment) : at;
            while (version + 1 < g->length && (g->versions[version + 1].time & ~BASE) <= moment) version++;
            unsigned char *place = whole ? out[k] + offset : partial;
            if (version == at) { if (place != previous) memcpy(place, previous, size); }
            else if ((problem = decode_page(s, g, at, version, previous, place, size, room))) return problem;
            if (!whole) memcpy(out[k] + offset, partial, shown - offset);
            at = version; previous = place;
        }
    }
    return 0;
}

/* What reading n frames with colours needs beside: pixels' places, tables, and where they go. */
static inline size_t placed_bytes(const store *s) { return (size_t)s->n_placed * s->page_bytes; }
static inline size_t colour_room(const store *s, uint32_t n) {
    return s->colours ? n * (placed_bytes(s) + TABLE_BYTES + sizeof(unsigned char *)) + 16 : 0;
}

/* Writes frames first .. first+n-1 of a stream to the places `out[0..n-1]`. `more`: colour_room bytes. */
static int decode_frames(const store *s, uint32_t stream, uint32_t first, uint32_t n, unsigned char *const *out, unsigned char *room,
                         unsigned char *more) {
    if (!s->colours) return decode_pages(s, stream, first, n, 0, s->n_pages, out, s->frame_bytes, room);
    unsigned char **to = (unsigned char **)(((uintptr_t)more + 15) & ~(uintptr_t)15), *tables = (unsigned char *)(to + n);
    unsigned char *places = tables + (size_t)n * TABLE_BYTES;
    uint32_t painted = 0;
    int problem;
    for (uint32_t k = 0; k < n; k++) to[k] = tables + (size_t)k * TABLE_BYTES;
    if ((problem = decode_pages(s, stream, first, n, s->n_data, s->n_pages, to, TABLE_BYTES, room))) return problem;
    for (uint32_t k = 0; k < n; k++) {
        painted += load32(tables + (size_t)k * TABLE_BYTES) > 0;
        to[k] = load32(tables + (size_t)k * TABLE_BYTES) ? NULL : out[k];
    }
    if (painted < n && (problem = decode_pages(s, stream, first, n, 0, s->n_data, to, s->frame_bytes, room))) return problem;
    if (!painted) return 0;
    for (uint32_t k = 0; k < n; k++) to[k] = to[k] ? NULL : places + k * placed_bytes(s);
    if ((problem = decode_pages(s, stream, first, n, 0, s->n_placed, to, placed_bytes(s), room))) return problem;
    for (uint32_t k = 0; k < n; k++)
        if (to[k]) paint(to[k], s->frame_bytes / PARTS, s->colours, tables + (size_t)k * TABLE_BYTES, out[k]);
    return 0;
}
#endif
