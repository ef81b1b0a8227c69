/* A store as bytes and back. Everything read is checked: a dump may come from anywhere. No Python here. See _core.c. */
#ifndef LEGROOM_DUMP_H
#define LEGROOM_DUMP_H
#include "_store.h"

#define MAGIC 0x3153524Cu       /* "LRS1" */
#define INDEX_HEAD 9u           /* words before the arenas' used bytes */

static size_t index_words(const store *s) {
    size_t n = INDEX_HEAD + s->n_arenas + s->n_streams;
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) n += 1 + 2 * (size_t)s->pages[i].length;
    return n;
}

static void write_index(const store *s, uint32_t *out) {
    uint32_t head[INDEX_HEAD] = {MAGIC, s->n_streams, s->frame_bytes, s->n_stack, s->outer, (uint32_t)s->newest_first, s->page_bytes,
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
    if (!a->bytes) return read_fully(s->fd, out, a->used, (uint64_t)i * ARENA_BYTES);
    memcpy(out, a->bytes, a->used);
    return 0;
}

/* Whether a version's record lies within the arenas and is of a kind and size it may have. */
static int sound_record(const store *s, version v, uint32_t size) {
    uint64_t at = (uint64_t)v.ref * s->unit;
    if (at / ARENA_BYTES >= s->n_arenas) return 0;
    const arena *a = &s->arenas[at / ARENA_BYTES];
    uint32_t offset = (uint32_t)(at % ARENA_BYTES);
    if (offset + 4 > a->used) return 0;
    header h = unpack(a->bytes + offset);
    if (h.size > a->used - offset - 4 || h.size > s->page_bytes) return 0;
    if (v.time & BASE) return h.kind == RAW ? h.size == size : h.kind == CONST ? h.size == 4 : h.kind == LZ4;
    return h.kind == DELTA || h.kind == PATCH;
}

/* Takes over the version vectors from the words at *in; every page that has frames must have its first version at 0. */
static int load_versions(store *s, const uint32_t **in, const uint32_t *end) {
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages; i++) {
        page *g = &s->pages[i];
        uint32_t size = page_size(s, (uint32_t)(i % s->n_pages)), frames = s->length[i / s->n_pages];
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
            if (time >= frames || !sound_record(s, g->versions[k], size)) return MALFORMED;
            previous = time;
        }
    }
    return 0;
}

/* Makes a loaded store writable: the pages' current bytes, the last observations, and the table of literals. */
static int revive(store *s) {
    unsigned char *room = take(reader_room(s));
    int problem = room ? 0 : NO_MEMORY;
    for (size_t i = 0; i < (size_t)s->n_streams * s->n_pages && !problem; i++) {
        page *g = &s->pages[i];
        uint32_t size = page_size(s, (uint32_t)(i % s->n_pages));
        if (!g->length) continue;
        g->chain = chain_of(s, g, size);
        for (uint32_t k = 0; k < g->length && !problem; k++) {
            if (!(g->versions[k].time & BASE) || is_constant_record(s, g->versions[k].ref)) continue;
            int replace = grow_table(s);
            if (replace < 0) problem = NO_MEMORY;
            else if (!(problem = load_base(s, g->versions[k].ref, s->scratch, size, s->room)))
                remember(s, tag_of(s->scratch, size), g->versions[k].ref, replace);
        }
        if (problem || (g->now = raw_record(s, g->versions[g->length - 1].ref))) continue;
        if (!(problem = ensure_spare(s, g) ? NO_MEMORY : decode_page(s, g, NONE, g->length - 1, g->spare, size, room))) g->now = g->spare;
    }
    for (uint32_t stream = 0; stream < s->n_streams && s->tail && !problem; stream++) {
        if (!s->length[stream]) continue;
        if (s->length[stream] < s->n_stack) problem = MALFORMED;
        else problem = read_observations(s, stream, s->length[stream] - 1, s->tail + (size_t)stream * s->n_stack * s->frame_bytes, NULL, room);
    }
    free(room);
    return problem;
}

/* Fills an empty store from its index and arenas[i] of sizes[i] bytes; an error leaves it empty. */
static int load_store(store *s, const uint32_t *index, size_t words, const unsigned char *const *arenas, const size_t *sizes, uint32_t n) {
    const uint32_t *end = index + words, head[INDEX_HEAD] = {MAGIC, s->n_streams, s->frame_bytes, s->n_stack, s->outer,
                                                              (uint32_t)s->newest_first, s->page_bytes, s->unit, n};
    int problem = MALFORMED;
    if (words < INDEX_HEAD + (size_t)n + s->n_streams || memcmp(index, head, sizeof head)) return MALFORMED;
    index += INDEX_HEAD;
    if ((uint64_t)n * (ARENA_BYTES / s->unit) >= NONE) return MALFORMED;
    if (n && !(s->arenas = take(n * sizeof *s->arenas))) return NO_MEMORY;
    s->cap_arenas = n;
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] > ARENA_BYTES || sizes[i] != index[i] || sizes[i] % s->unit) goto failed;
        unsigned char *bytes = map_bytes(ARENA_BYTES);
        if (!bytes) { problem = NO_MEMORY; goto failed; }
        ASAN_POISON_MEMORY_REGION(bytes, ARENA_BYTES); ASAN_UNPOISON_MEMORY_REGION(bytes, sizes[i]);
        memcpy(bytes, arenas[i], sizes[i]);
        s->arenas[s->n_arenas++] = (arena){bytes, (uint32_t)sizes[i], ARENA_BYTES};
    }
    index += n;
    memcpy(s->length, index, s->n_streams * sizeof *s->length); index += s->n_streams;
    for (uint32_t i = 0; i < s->n_streams; i++) if (s->length[i] >= BASE) goto failed;
    if ((problem = load_versions(s, &index, end))) goto failed;
    if (index != end) { problem = MALFORMED; goto failed; }
    if (!(problem = revive(s))) return 0;
failed:
    empty_store(s);
    return problem;
}
#endif
