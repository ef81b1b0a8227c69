/* A page as its previous version moved by some bytes, and what does not follow from that: copies of other places of the
 * previous version (what moves on its own), and new bytes (what comes into the picture, what was hidden).
 *
 * A payload is the shift (16 bits, signed: byte i comes from byte i - shift); how many copies (8 bits), fillings (8) and runs
 * of new bytes (16) there are; of a stripe (the columns that come into a picture) the length in each row, 0 for none, where it
 * begins and after how many bytes it comes again (16 bits each); and then, each in the order of their places,
 *
 *   of every copy how far it begins after the last one's end and its length, plus 128 where it comes from as far off as the
 *     last one does; then, of the others, where they come from (16 bits)
 *   of every filling how far, its length, and the byte
 *   of every run of new bytes how far and its length
 *   the bytes of the stripe, and all new bytes
 *
 * A length of 0 only goes further. Copies are all taken before anything is written, and what is written is right wherever it
 * overlaps. It must cover the places that the shift leaves open. So several moves in a row need not be applied to a page one
 * after the other: where a picture wider than the page is kept, moving it costs nothing (`decode_moves` in _records.h). Lengths
 * stand apart from bytes, so that a processor need not wait for one to find the next. */
#ifndef LEGROOM_MOVE_H
#define LEGROOM_MOVE_H
#include "_words.h"

#define MOVE_HEAD 11u
#define WIDEST_STRIPE 32u
#define MOST_COPIES 255u
#define LONGEST 127u            /* bytes of a copy or of new ones */
#define SMALLEST_MOVED 1024u    /* bytes of a page */
#define SLACK 64u               /* bytes that may be read or written beyond what is asked */
#define MOVE_BITS 12
#define VOTES 48u               /* places that say how far a page has moved */
#define LEAST_COPY 8u
#define LEAST_FILLING 6u
#define SAME_AHEAD 3u           /* equal bytes that end a run of new ones */

static inline int32_t shift_of(const unsigned char *payload) { int16_t shift; memcpy(&shift, payload, 2); return shift; }

/* Copies exactly `length` bytes, up to LONGEST; up to 15 bytes more are read, and written as they were. */
static inline void put_exactly(unsigned char *to, const unsigned char *from, uint32_t length) {
    static const uint64_t kept[9] = {~0ull, ~0ull << 8, ~0ull << 16, ~0ull << 24, ~0ull << 32, ~0ull << 40, ~0ull << 48, ~0ull << 56, 0};
    if (length < 16) {
        uint32_t low = length < 8 ? length : 8, high = length - low;
        uint64_t a = (load64(to) & kept[low]) | (load64(from) & ~kept[low]);
        uint64_t b = (load64(to + 8) & kept[high]) | (load64(from + 8) & ~kept[high]);
        memcpy(to, &a, 8); memcpy(to + 8, &b, 8);
        return;
    }
    for (uint32_t k = 0; k + 16 < length; k += 16) memcpy(to + k, from + k, 16);
    memcpy(to + length - 16, from + length - 16, 16);
}

static inline uint32_t load16(const unsigned char *p) { return p[0] | (uint32_t)p[1] << 8; }

/* Completes a page of `n` bytes at `page` that was moved already, so that the previous version begins at page + shift. SLACK
 * bytes beyond both may be touched; `taken` has n + SLACK. 0, or -1 for what is malformed. */
#define COMPLETE_MOVE(put_exactly) { \
    if (size < MOVE_HEAD) return -1; \
    const unsigned char *end = payload + size, *before = page + shift_of(payload), *copies = payload + MOVE_HEAD; \
    const uint32_t n_copies = payload[2], n_fills = payload[3], n_runs = load16(payload + 4); \
    if ((size_t)(end - copies) < 2 * n_copies + 3 * n_fills + 2 * n_runs) return -1; \
    const unsigned char *sources = copies + 2 * n_copies; \
    unsigned char *from_taken = taken; \
    uint32_t at = 0; \
    int32_t distance = 0; \
    for (uint32_t k = 0; k < n_copies; k++) { \
        uint32_t length = copies[2 * k + 1] & 127u, known = copies[2 * k + 1] >> 7 | !length; \
        at += copies[2 * k]; \
        if ((size_t)(end - sources) < 2 - 2 * known) return -1; \
        int32_t other = (int32_t)load16(known ? payload : sources) - (int32_t)at; \
        distance = known ? distance : other; sources += 2 - 2 * known; \
        uint32_t from = length ? at + (uint32_t)distance : 0; \
        if (at > n || length > n - at || from > n || length > n - from) return -1; \
        memcpy(taken, before + from, 32);        /* most are short */ \
        for (uint32_t i = 32; i < length; i += 32) memcpy(taken + i, before + from + i, 32); \
        at += length; taken += length;      /* places do not overlap, so all of them are at most n bytes */ \
    } \
    const uint32_t wide = payload[6], start = load16(payload + 7), period = load16(payload + 9); \
    const uint32_t rows = wide && period >= wide && start + wide <= n ? (n - start - wide) / period + 1 : 0, stripe = rows * wide; \
    if (wide > WIDEST_STRIPE || (wide && !rows) || (size_t)(end - sources) < 3 * n_fills + 2 * n_runs + stripe) return -1; \
    const unsigned char *column = sources + 3 * n_fills + 2 * n_runs; \
    for (uint32_t k = 0; k < rows; k++, column += wide) { \
        if ((size_t)(end - column) >= WIDEST_STRIPE) put_exactly(page + start + k * period, column, wide); \
        else memcpy(page + start + k * period, column, wide); \
    } \
    at = 0; \
    for (uint32_t k = 0; k < n_copies; k++) { \
        uint32_t length = copies[2 * k + 1] & 127u; \
        at += copies[2 * k]; \
        if (length) put_exactly(page + at, from_taken, length); \
        at += length; from_taken += length; \
    } \
    at = 0; \
    for (uint32_t k = 0; k < n_fills; k++, sources += 3) { \
        uint32_t length = sources[1] & 127u; \
        at += sources[0]; \
        if (at > n || length > n - at) return -1; \
        memset(page + at, sources[2], length); \
        at += length; \
    } \
    const unsigned char *runs = sources, *bytes = sources + 2 * n_runs + stripe; \
    at = 0; \
    for (uint32_t k = 0; k < n_runs; k++) { \
        uint32_t length = runs[2 * k + 1] & 127u; \
        at += runs[2 * k]; \
        if (at > n || length > n - at || length > (size_t)(end - bytes)) return -1; \
        if ((size_t)(end - bytes) >= length + 16) put_exactly(page + at, bytes, length); \
        else memcpy(page + at, bytes, length); \
        at += length; bytes += length; \
    } \
    return bytes == end ? 0 : -1; }
static int complete_anywhere(unsigned char *page, uint32_t n, const unsigned char *payload, uint32_t size, unsigned char *taken) COMPLETE_MOVE(put_exactly)

#if defined(__x86_64__) && defined(__GNUC__) && !defined(LEGROOM_PORTABLE)
#include <immintrin.h>
/* Where a processor can write some bytes of many, nothing needs to be read first, and few lengths make a difference. */
#define WITH_MASKS __attribute__((target("avx512bw,avx512vl")))
WITH_MASKS static inline void put_masked(unsigned char *to, const unsigned char *from, uint32_t length) {
    if (length <= 32) {
        const __mmask32 some = (__mmask32)((1ull << length) - 1);
        _mm256_mask_storeu_epi8(to, some, _mm256_maskz_loadu_epi8(some, from));
        return;
    }
    for (uint32_t k = 0; k + 32 < length; k += 32) memcpy(to + k, from + k, 32);
    memcpy(to + length - 32, from + length - 32, 32);
}
WITH_MASKS static int complete_masked(unsigned char *page, uint32_t n, const unsigned char *payload, uint32_t size, unsigned char *taken) COMPLETE_MOVE(put_masked)
static int complete_move(unsigned char *page, uint32_t n, const unsigned char *payload, uint32_t size, unsigned char *taken) {
    int masks = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return (masks ? complete_masked : complete_anywhere)(page, n, payload, size, taken);
}
#else
#define complete_move complete_anywhere
#endif

/* Whether copies, fillings and new bytes cover all that the shift leaves open, in a payload that is sound otherwise. */
static int covers_open(const unsigned char *payload, uint32_t n, unsigned char *seen) {
    int32_t shift = shift_of(payload);
    uint32_t from = shift < 0 ? n - (uint32_t)-shift : 0, to = shift < 0 ? n : (uint32_t)shift;
    const unsigned char *in = payload + MOVE_HEAD, *copies = in;
    const uint32_t counts[3] = {payload[2], payload[3], load16(payload + 4)};
    memset(seen, 0, n);
    for (uint32_t at = load16(payload + 7); payload[6] && at + payload[6] <= n; at += load16(payload + 9)) memset(seen + at, 1, payload[6]);
    for (uint32_t kind = 0; kind < 3; kind++) {
        for (uint32_t k = 0, at = 0; k < counts[kind]; k++, in += kind == 1 ? 3 : 2) {
            at += in[0];
            memset(seen + at, 1, in[1] & 127u);
            at += in[1] & 127u;
        }
        for (uint32_t k = 0; kind == 0 && k < counts[0]; k++) in += copies[2 * k + 1] && copies[2 * k + 1] < 128 ? 2 : 0;
    }
    return from == to || !memchr(seen + from, 0, to - from);
}

/* ---- writing ---- */

/* A list of places: each how far after the last one's end, and a length. */
typedef struct { unsigned char *pairs; uint32_t count, most, end; } places;
typedef struct {                /* what finding moves needs */
    uint16_t table[1 << MOVE_BITS];     /* 1 + where eight bytes of the previous version are */
    int32_t shift;              /* that was best last time */
    unsigned char copies[2 * MOST_COPIES], sources[2 * MOST_COPIES], fills[2 * MOST_COPIES], fillings[MOST_COPIES];
} mover;

/* Adds a place to a list; 0 where it is full. */
static int put_place(places *list, uint32_t at, uint32_t length, uint32_t flag) {
    uint32_t skip = at - list->end;
    if (list->count + skip / 255 + 1 > list->most) return 0;
    for (; skip > 255; skip -= 255) { list->pairs[2 * list->count] = 255; list->pairs[2 * list->count++ + 1] = 0; }
    list->pairs[2 * list->count] = (unsigned char)skip;
    list->pairs[2 * list->count++ + 1] = (unsigned char)(length | flag);
    list->end = at + length;
    return 1;
}

static inline uint32_t move_slot(const unsigned char *p) { return (uint32_t)(load64(p) * 0x9E3779B97F4A7C15ull >> (64 - MOVE_BITS)); }

/* Returns at how many of some places a page looks like the previous version moved so far. */
static inline uint32_t like(const unsigned char *old, const unsigned char *new, uint32_t n, int32_t shift) {
    uint32_t first = shift > 0 ? (uint32_t)shift : 0, end = (shift < 0 ? n - (uint32_t)-shift : n) - 4, count = 0;
    for (uint32_t i = 0; i < VOTES; i++) {
        uint32_t at = i * (n / VOTES);
        count += at >= first && at <= end && load32(new + at) == load32(old + at - shift);
    }
    return count;
}

/* Returns the shift that most of the page follows. */
static int32_t find_shift(mover *m, const unsigned char *old, const unsigned char *new, uint32_t n) {
    int32_t best = 0, found[VOTES];
    uint32_t most = like(old, new, n, 0), votes = 0, last = 0;
    if (m->shift && (uint32_t)(m->shift < 0 ? -m->shift : m->shift) + 8 < n && (last = like(old, new, n, m->shift)) > most) { most = last; best = m->shift; }
    if (most > VOTES - VOTES / 4) return best;
    for (uint32_t i = 0; i < VOTES; i++) {
        uint32_t at = i * (n / VOTES), from = at + 8 <= n ? m->table[move_slot(new + at)] : 0;
        if (from && load64(old + from - 1) == load64(new + at)) found[votes++] = (int32_t)at - (int32_t)(from - 1);
    }
    for (uint32_t i = 0; i < votes; i++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k < votes; k++) count += found[k] == found[i];
        if (count < 4 || count * 3 < votes || found[i] == best) continue;
        uint32_t alike = (uint32_t)(found[i] < 0 ? -found[i] : found[i]) + 8 < n ? like(old, new, n, found[i]) : 0;
        if (alike > most) { most = alike; best = found[i]; }
    }
    return best;
}

/* Lists new bytes from `i` to `end`, and puts them at *bytes; 0 where there is no room. */
static int put_new(mover *m, places *fills, places *runs, const unsigned char *new, uint32_t i, uint32_t end, unsigned char **bytes,
                   const unsigned char *limit) {
    while (i < end) {
        uint32_t same = 1, length;
        while (i + same < end && same < LONGEST && new[i + same] == new[i]) same++;
        if (same >= LEAST_FILLING) {
            uint32_t before = fills->count;
            if (put_place(fills, i, same, 0)) {
                memset(m->fillings + before, new[i], fills->count - before);
                i += same;
                continue;
            }
        }
        for (length = 1; i + length < end && length < LONGEST; length++)
            if (i + length + LEAST_FILLING <= end && !memcmp(new + i + length, new + i + length + 1, LEAST_FILLING - 1)) break;
        if ((size_t)(limit - *bytes) < length || !put_place(runs, i, length, 0)) return 0;
        memcpy(*bytes, new + i, length);
        *bytes += length; i += length;
    }
    return 1;
}

/* Where the columns begin that come into a picture whose rows have `row` bytes, `phase` bytes of one before this page; the
 * result's length is 0 where there are none. */
typedef struct { uint32_t length, start, period; } stripe;
static stripe find_stripe(int32_t shift, uint32_t n, uint32_t row, uint32_t phase) {
    if (row < 16 || row > n / 4) return (stripe){0, 0, 0};
    int32_t across = shift % (int32_t)row, half = (int32_t)row / 2;
    across = across > half ? across - (int32_t)row : across < -half ? across + (int32_t)row : across;
    uint32_t length = (uint32_t)(across < 0 ? -across : across);
    if (!length || length > WIDEST_STRIPE) return (stripe){0, 0, 0};
    return (stripe){length, (2 * row - phase % row - (across < 0 ? length : 0)) % row, row};
}

/* Writes `new` as a move of `old` to `out`; returns its bytes, or 0 when it would exceed `limit`. `room` has 3 * n bytes. */
static uint32_t make_move(mover *m, const unsigned char *old, const unsigned char *new, uint32_t n, uint32_t row, uint32_t phase, unsigned char *out,
                          uint32_t limit, unsigned char *room) {
    memset(m->table, 0, sizeof m->table);
    for (uint32_t k = 0; k + 8 <= n; k++) m->table[move_slot(old + k)] = (uint16_t)(k + 1);
    int32_t shift = find_shift(m, old, new, n), distance = 0;
    uint32_t first = shift > 0 ? (uint32_t)shift : 0, stop = shift < 0 ? n - (uint32_t)-shift : n, known = 0, n_sources = 0, i = 0;
    places copies = {m->copies, 0, MOST_COPIES, 0}, fills = {m->fills, 0, MOST_COPIES, 0}, runs = {room + n, 0, n / 2, 0};
    unsigned char *bytes = room, *expected = room + 2 * n;
    const unsigned char *most = room + (limit < n ? limit : n);
    const stripe s = find_stripe(shift, n, row, phase);
    m->shift = shift;
    memcpy(expected + first, old + first - shift, stop - first);
    for (uint32_t at = s.start; s.length && at + s.length <= n; at += s.period) {
        if (most - bytes < (int64_t)s.length) return 0;
        memcpy(expected + at, new + at, s.length);
        memcpy(bytes, new + at, s.length); bytes += s.length;
    }
    while (i < n) {
        if (i >= first && i < stop && (i = differing_byte(new, expected, i, stop)) == n) break;
        uint32_t end = i < first ? first : i + 1;       /* of what does not follow from the shift */
        if (i >= stop) end = n;
        else for (; end < stop; end++)
            if (!memcmp(new + end, expected + end, end + SAME_AHEAD <= stop ? SAME_AHEAD : stop - end)) break;
        if (end >= stop) end = n;
        for (uint32_t j = i; j + LEAST_COPY <= end;) {
            int64_t again = (int64_t)j + distance;
            uint32_t from = known && again >= 0 && again + 8 <= n && load64(old + again) == load64(new + j) ? (uint32_t)again + 1 : m->table[move_slot(new + j)];
            if (!from || load64(old + from - 1) != load64(new + j)) { j++; continue; }
            from--;
            uint32_t length = 8;
            while (j + length < end && from + length < n && length < LONGEST && new[j + length] == old[from + length]) length++;
            while (j > i && from > 0 && length < LONGEST && new[j - 1] == old[from - 1]) { j--; from--; length++; }
            int32_t far = (int32_t)from - (int32_t)j, same = known && far == distance;
            if (!put_place(&copies, j, length, same ? 128 : 0)) break;
            if (!same) { m->sources[2 * n_sources] = (unsigned char)from; m->sources[2 * n_sources++ + 1] = (unsigned char)(from >> 8); }
            distance = far; known = 1;
            if (!put_new(m, &fills, &runs, new, i, j, &bytes, most)) return 0;
            i = j += length;
        }
        if (!put_new(m, &fills, &runs, new, i, end, &bytes, most)) return 0;
        i = end;
    }
    uint32_t n_bytes = (uint32_t)(bytes - room), p = MOVE_HEAD;
    if (runs.count > 65535 || p + 2 * copies.count + 2 * n_sources + 3 * fills.count + 2 * runs.count + n_bytes > limit) return 0;
    const uint16_t head[] = {(uint16_t)(int16_t)shift, (uint16_t)(copies.count | fills.count << 8), (uint16_t)runs.count};
    const uint16_t where[] = {(uint16_t)s.start, (uint16_t)s.period};
    memcpy(out, head, 6); out[6] = (unsigned char)s.length; memcpy(out + 7, where, 4);
    memcpy(out + p, m->copies, 2 * copies.count); p += 2 * copies.count;
    memcpy(out + p, m->sources, 2 * n_sources); p += 2 * n_sources;
    for (uint32_t k = 0; k < fills.count; k++, p += 3) { memcpy(out + p, m->fills + 2 * k, 2); out[p + 2] = m->fillings[k]; }
    memcpy(out + p, runs.pairs, 2 * runs.count); p += 2 * runs.count;
    memcpy(out + p, room, n_bytes);
    return p + n_bytes;
}
#endif
