/* A store as bytes and back. Everything read is checked: a dump may come from anywhere. No Python here. See _core.c. */
#ifndef LEGROOM_DUMP_H
#define LEGROOM_DUMP_H
#include "_store.h"

#define MAGIC 0x3253524Cu       /* "LRS2" */
#define OLD_MAGIC 0x3153524Cu   /* "LRS1": the same without NARROW records */
#define INDEX_HEAD 9u           /* words before the arenas' used bytes */

/* At least as many changes in a row as a store writes to a page. The reference counts 56 bytes or more for each towards
 * CHAIN_LIMIT pages, this core more than FINDING or a PATCH_WORK-th of a page. */
static inline uint32_t most_changes(uint32_t size) { return 16 + size / 16; }

static size_t index_words(const store *s) {
    size_t n = INDEX_HEAD + s->n_arenas + s->n_streams;
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) n += 1 + 2 * (size_t)s->pages[i].length;
    return n;
}

static inline uint32_t layout_of(const store *s) { return (uint32_t)s->newest_first | (uint32_t)s->colours << 1; }

static void write_index(const store *s, uint32_t *out) {
    uint32_t head[INDEX_HEAD] = {MAGIC, s->n_streams, s->frame_bytes, s->n_stack, s->outer, layout_of(s), s->page_bytes,
                                 s->unit, s->n_arenas};
    memcpy(out, head, sizeof head); out += INDEX_HEAD;
    for (uint32_t i = 0; i < s->n_arenas; i++) *out++ = s->arenas[i].used;
    for (uint32_t i = 0; i < s->n_streams; i++) *out++ = s->length[i];
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
        const page *g = &s->pages[i];
        *out++ = g->length;
        if (g->length) { memcpy(out, g->versions, g->length * sizeof *g->versions); }
        out += 2 * (size_t)g->length;
    }
}

static int copy_arena(const store *s, uint32_t i, unsigned char *out) {
    const arena *a = &s->arenas[i];
    if (!a->bytes) return read_blocks(s, i, 0, blocks_of(a->used), out);
    if (a->held && hold(s, a, 0, a->used)) return SYSTEM_ERROR;
    memcpy(out, a->bytes, a->used);
    return 0;
}

/* ---- records of a dump: each is looked at once, so that loading takes no longer than its bytes account for ---- */

/* A bit for each unit of all arenas: where records begin, and which are known to be sound for pages of one size. */
typedef struct { unsigned char *begins, *checked; size_t bytes; } marks;

static inline int marked(const unsigned char *bits, uint32_t ref) { return bits[ref / 8] >> ref % 8 & 1; }
static inline void mark(unsigned char *bits, uint32_t ref) { bits[ref / 8] |= (unsigned char)(1u << ref % 8); }

/* Marks where records begin; an arena must be whole records, one after the other. */
static int mark_records(const store *s, unsigned char *begins) {
    for (uint32_t i = 0; i < s->n_arenas; i++) {
        const arena *a = &s->arenas[i];
        for (uint32_t offset = 0; offset < a->used;) {      /* both are multiples of the unit, so a header is there */
            header h = unpack(a->bytes + offset);
            if (h.kind >= KINDS || h.size > s->page_bytes || h.size > a->used - offset - 4) return MALFORMED;
            mark(begins, (uint32_t)(((uint64_t)i * ARENA_BYTES + offset) / s->unit));
            offset += record_bytes(s, h.size);
        }
    }
    return 0;
}

/* Whether a move can be applied to a page of `size` bytes, and leaves no place open. */
static int is_move(store *s, const unsigned char *payload, uint32_t bytes, uint32_t size) {
    int32_t shift = bytes < MOVE_HEAD ? INT32_MAX : shift_of(payload);
    if (shift > (int32_t)size || -shift > (int32_t)size) return 0;
    return !complete_move(s->room + wide_at(s) + SLACK + size, size, payload, bytes, s->room + taken_at(s))
           && covers_open(payload, size, s->scratch);
}

/* Checks that a version's record is one, stands alone where it must, and can be a page of `size` bytes; remembers a
 * literal. Whether a change is well formed does not depend on what it changes. */
static int check_record(store *s, version v, uint32_t size, const marks *m) {
    if (v.ref / 8 >= m->bytes || !marked(m->begins, v.ref)) return MALFORMED;
    header h;
    const unsigned char *payload = find_record(s, v.ref, &h, s->room);      /* in memory as yet */
    if ((h.kind == DELTA || h.kind == BYTES || h.kind == PATCH || h.kind == MOVE) == !!(v.time & BASE)) return MALFORMED;
    if (marked(m->checked, v.ref)) return 0;
    mark(m->checked, v.ref);
    if (h.kind == DELTA || h.kind == BYTES) return apply_change(h, s->scratch, size, payload) ? MALFORMED : 0;
    if (h.kind == PATCH) return lz_decode(payload, h.size, s->scratch, size, s->pair) ? MALFORMED : 0;
    if (h.kind == MOVE) return is_move(s, payload, h.size, size) ? 0 : MALFORMED;
    int problem = load_base(s, v.ref, s->scratch, size, s->room);
    if (problem || h.kind == CONST) return problem;
    int replace = grow_table(s);
    if (replace < 0) return NO_MEMORY;
    remember(s, tag_of(s->scratch, size), v.ref, replace);
    return 0;
}

/* Checks what all versions stand for. More changes in a row than any store writes would make reading slow. */
static int check_records(store *s) {
    marks m = {.bytes = s->n_arenas * (ARENA_BYTES / s->unit / 8)};
    if (!(m.begins = map_bytes(2 * m.bytes + 1))) return NO_MEMORY;     /* one more, as there may be no arenas */
    m.checked = m.begins + m.bytes;
    memset(s->pair, 0, s->page_bytes);      /* what patches are tried on */
    int problem = mark_records(s, m.begins);
    for (uint32_t p = 0; p < s->n_pages && !problem; p++) {
        uint32_t size = page_size(s, p);
        if (p && size != s->page_bytes) memset(m.checked, 0, m.bytes);  /* smaller pages, the last of each frame */
        for (uint32_t stream = 0; stream < s->n_streams && !problem; stream++) {
            const page *g = &s->pages[(size_t)stream * s->n_pages + p];
            for (uint32_t k = 0, changes = 0; k < g->length && !problem; k++) {
                changes = g->versions[k].time & BASE ? 0 : changes + 1;
                problem = changes > most_changes(size) ? MALFORMED : check_record(s, g->versions[k], size, &m);
            }
        }
    }
    unmap_bytes(m.begins, 2 * m.bytes + 1);
    return problem;
}

/* Takes over the version vectors from the words at *in; every page that has frames must have its first version at 0. */
static int load_versions(store *s, const uint32_t **in, const uint32_t *end) {
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
        page *g = &s->pages[i];
        uint32_t frames = s->length[i / s->n_pages];
        if (end - *in < 1) return MALFORMED;
        uint32_t count = *(*in)++, previous = 0;
        if ((size_t)(end - *in) / 2 < count || (count > 0) != (frames > 0) || count > frames) return MALFORMED;
        if (!count) continue;
        if (!(g->versions = take(count * sizeof *g->versions))) return NO_MEMORY;
        g->capacity = g->length = count;
        s->nbytes_versions += (uint64_t)count * sizeof *g->versions;
        memcpy(g->versions, *in, count * sizeof *g->versions); *in += 2 * (size_t)count;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t time = g->versions[k].time & ~BASE;
            if (k ? time <= previous : g->versions[k].time != BASE) return MALFORMED;
            if (time >= frames) return MALFORMED;
            previous = time;
        }
    }
    return 0;
}

/* Makes a loaded store writable: the pages' current bytes and the last observations. */
static int revive(store *s) {
    unsigned char *room = take(reader_room(s));
    int problem = room ? 0 : NO_MEMORY;
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages && !problem; i++) {
        page *g = &s->pages[i];
        uint32_t p = (uint32_t)(i % s->n_pages), size = page_size(s, p);
        if (!g->length) continue;
        g->chain = chain_of(s, g, size);
        if (s->colours && p >= s->n_placed && p < s->n_data) { g->stale = 1; continue; }   /* perhaps not needed again */
        if ((g->now = raw_record(s, g->versions[g->length - 1].ref))) continue;
        if (!(problem = ensure_spare(s, g) ? NO_MEMORY : decode_page(s, g, NONE, g->length - 1, NULL, g->spare, size, room))) g->now = g->spare;
    }
    for (uint32_t stream = 0; stream < s->n_streams && s->tail && !problem; stream++) {
        if (!s->length[stream]) continue;
        if (s->colours) recall_colours(&s->palettes[stream], s->pages[(size_t)(stream + 1) * s->n_pages - 1].now);
        unsigned char *tail = s->tail + (size_t)stream * s->n_stack * s->frame_bytes;
        problem = read_observations(s, stream, s->length[stream] - 1, tail, NULL, room);
    }
    free(room);
    return problem;
}

/* Checks what can be checked without looking at any record: where they begin, and how many changes are in a row. */
static int check_versions(const store *s) {
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
        const page *g = &s->pages[i];
        for (uint32_t k = 0, changes = 0; k < g->length; k++) {
            uint64_t at = (uint64_t)g->versions[k].ref * s->unit;
            if (at / ARENA_BYTES >= s->n_arenas || at % ARENA_BYTES + 4 > s->arenas[at / ARENA_BYTES].used) return MALFORMED;
            changes = g->versions[k].time & BASE ? 0 : changes + 1;
            if (changes > most_changes(s->page_bytes)) return MALFORMED;
        }
    }
    return 0;
}

/* Makes an arena of bytes that begin at `at` of a file and are read as needed. */
static int reserve_arena(arena *a, uint64_t at, uint32_t used, const uint32_t *sums) {
    uint32_t mapped = (used + (uint32_t)SMALL_PAGE - 1) & ~(uint32_t)(SMALL_PAGE - 1);
    *a = (arena){map_bytes(mapped ? mapped : SMALL_PAGE), used, mapped ? mapped : (uint32_t)SMALL_PAGE, take(4 * blocks_of(used) + 1), take_zeroed(blocks_of(used) + 1, 1), at};
    if (a->bytes && a->sums && a->held) { memcpy(a->sums, sums, 4 * blocks_of(used)); return 0; }
    return NO_MEMORY;
}

/* Fills an empty store from its index and arenas[i] of sizes[i] bytes; an error leaves it empty. Without `arenas`, they
 * begin at at[i] of the file s->opened, whose blocks have these checksums; they and their records are looked at only
 * when they are read, and the store is sealed. */
static int load_store(store *s, const uint32_t *index, size_t words, const unsigned char *const *arenas,
                      const size_t *sizes, size_t n, const uint64_t *at, const uint32_t *sums) {
    int lent = !arenas;
    const uint32_t *end = index + words;
    const uint32_t head[INDEX_HEAD] = {MAGIC, s->n_streams, s->frame_bytes, s->n_stack, s->outer,
                                       layout_of(s), s->page_bytes, s->unit, (uint32_t)n};
    int problem = MALFORMED;
    if (n * (ARENA_BYTES / s->unit) >= NONE) return MALFORMED;
    if (words < INDEX_HEAD + n + s->n_streams || (index[0] != MAGIC && index[0] != OLD_MAGIC)
        || memcmp(index + 1, head + 1, sizeof head - sizeof *head)) return MALFORMED;
    index += INDEX_HEAD;
    if (n && !(s->arenas = take(n * sizeof *s->arenas))) return NO_MEMORY;
    s->cap_arenas = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        if (sizes[i] > ARENA_BYTES || sizes[i] != index[i] || sizes[i] % s->unit) goto failed;
        if (lent) {
            problem = reserve_arena(&s->arenas[s->n_arenas++], at[i], (uint32_t)sizes[i], sums);
            if (problem) goto failed;
            problem = MALFORMED;
            sums += blocks_of((uint32_t)sizes[i]);
            continue;
        }
        unsigned char *bytes = map_bytes(ARENA_BYTES);
        if (!bytes) { problem = NO_MEMORY; goto failed; }
        ASAN_POISON_MEMORY_REGION(bytes, ARENA_BYTES); ASAN_UNPOISON_MEMORY_REGION(bytes, sizes[i]);
        memcpy(bytes, arenas[i], sizes[i]);
        s->arenas[s->n_arenas++] = (arena){bytes, (uint32_t)sizes[i], ARENA_BYTES, NULL, NULL, 0};
    }
    index += n;
    memcpy(s->length, index, s->n_streams * sizeof *s->length); index += s->n_streams;
    for (uint32_t i = 0; i < s->n_streams; i++)
        if (s->length[i] >= BASE || (s->length[i] && s->length[i] < s->n_stack)) goto failed;
    if ((problem = load_versions(s, &index, end))) goto failed;
    if (index != end) { problem = MALFORMED; goto failed; }
    if (lent && !(problem = check_versions(s))) { free_writer(s); return 0; }
    if (!lent && !(problem = check_records(s)) && !(problem = revive(s))) return 0;
failed:
    empty_store(s);
    return problem;
}
#endif
