/* Raw 32-bit words: hashing, constants, and deltas between two versions of a page. */
#ifndef LEGROOM_WORDS_H
#define LEGROOM_WORDS_H
#include <stdint.h>
#include <string.h>

#define FILL 0x8000u            /* delta token: one word follows, to be repeated */

/* ---- words ---- */

static inline uint32_t load32(const void *p) { uint32_t v; memcpy(&v, p, 4); return v; }
/* Fetches ahead. The empty statement is not empty to gcc, which otherwise takes a function of these for no work and leaves it out. */
static inline void fetch(const void *at) { __builtin_prefetch(at); __asm__ volatile("" ::: "memory"); }
static inline uint64_t load64(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static uint64_t hash_bytes(const unsigned char *p, uint32_t n) {
    const uint64_t k = 0x9E3779B97F4A7C15ull;
    uint64_t a = n * k, b = a ^ 0x1234567, c = a ^ 0x89ABCDEF, d = a ^ 0x13579BDF;
    while (n >= 32) {
        a = (a ^ load64(p)) * k; b = (b ^ load64(p + 8)) * k; c = (c ^ load64(p + 16)) * k; d = (d ^ load64(p + 24)) * k;
        a ^= a >> 29; b ^= b >> 31; c ^= c >> 33; d ^= d >> 27;
        p += 32; n -= 32;
    }
    while (n >= 4) { a = (a ^ load32(p)) * k; a ^= a >> 29; p += 4; n -= 4; }
    a = (a ^ (b << 1 | b >> 63)) * k; a ^= a >> 32; a = (a ^ (c << 7 | c >> 57)) * k; a ^= a >> 32;
    a = (a ^ (d << 13 | d >> 51)) * k; return a ^ a >> 32;
}

static int is_constant(const unsigned char *p, uint32_t n) { return n <= 4 || !memcmp(p, p + 4, n - 4); }

static void fill_words(unsigned char *out, uint32_t word, uint32_t n) {
    unsigned char first = word & 255;
    if (word == first * 0x01010101u) { memset(out, first, n); return; }
    for (uint32_t i = 0; i < n; i += 4) memcpy(out + i, &word, 4);
}

/* ---- deltas: (skip, length) tokens in 16 bits each, then `length` words, or one word if FILL is set ---- */

static inline uint32_t differing_from(const unsigned char *a, const unsigned char *b, uint32_t i, uint32_t words) {
    while (i + 8 <= words && !memcmp(a + 4 * i, b + 4 * i, 32)) i += 8;
    while (i < words && load32(a + 4 * i) == load32(b + 4 * i)) i++;
    return i;
}

/* Writes the delta to `out` and returns its bytes, or 0 when it would exceed `limit`. */
static uint32_t make_delta(const unsigned char *old, const unsigned char *new, uint32_t words, uint32_t *out, uint32_t limit) {
    uint32_t n = 0, at = 0, most = limit / 4;
    for (uint32_t i = differing_from(old, new, 0, words); i < words; i = differing_from(old, new, i, words)) {
        uint32_t word = load32(new + 4 * i), same = i + 1, end;
        while (same < words && load32(new + 4 * same) == word && load32(old + 4 * same) != word) same++;
        if (same - i >= 4) {
            if (n + 2 > most) return 0;
            out[n++] = (i - at) | (uint32_t)((same - i) | FILL) << 16; out[n++] = word;
            at = i = same;
            continue;
        }
        end = i + 1;            /* a literal run; gaps of one equal word are cheaper inside than a new token */
        while (end < words) {
            if (load32(old + 4 * end) != load32(new + 4 * end)) { end++; continue; }
            if (end + 1 < words && load32(old + 4 * end + 4) != load32(new + 4 * end + 4)) { end += 2; continue; }
            break;
        }
        if (n + 1 + (end - i) > most) return 0;
        out[n++] = (i - at) | (end - i) << 16;
        memcpy(out + n, new + 4 * i, 4 * (size_t)(end - i)); n += end - i;
        at = i = end;
    }
    return 4 * n;
}

/* Applies a delta to a page of `n` bytes; returns 0, or -1 for one that would leave the page (never one of ours). */
static int apply_delta(unsigned char *bytes, uint32_t n, const unsigned char *delta, uint32_t size) {
    const unsigned char *end = delta + size;
    uint32_t at = 0, words = n / 4;
    while (end - delta >= 8) {  /* a token and at least one word */
        uint32_t token = load32(delta), run = token >> 16, fill = run & FILL;
        run &= ~FILL; at += token & 0xFFFF; delta += 4;
        if (at > words || run > words - at) return -1;
        if (fill) { fill_words(bytes + 4 * at, load32(delta), 4 * run); delta += 4; }
        else {
            if ((size_t)(end - delta) < 4 * (size_t)run) return -1;
            memcpy(bytes + 4 * at, delta, 4 * (size_t)run); delta += 4 * run;
        }
        at += run;
    }
    return delta == end ? 0 : -1;
}

/* ---- the same byte by byte, for a few that moved: (skip, length) in as many bytes as they need, then the bytes ---- */

static inline uint32_t put_number(unsigned char *out, uint32_t v) {     /* 7 bits a byte, the last one below 128 */
    uint32_t n = 0;
    for (; v > 127; v >>= 7) out[n++] = (unsigned char)(v | 128);
    out[n++] = (unsigned char)v;
    return n;
}
static inline int get_number(const unsigned char **at, const unsigned char *end, uint32_t *v) {
    *v = 0;
    for (uint32_t shift = 0; shift < 21; shift += 7) {
        if (*at == end) return -1;
        uint32_t byte = *(*at)++;
        *v |= (byte & 127) << shift;
        if (byte < 128) return 0;
    }
    return -1;
}
static inline uint32_t differing_byte(const unsigned char *a, const unsigned char *b, uint32_t i, uint32_t n) {
    for (; i + 8 <= n; i += 8) {
        uint64_t different = load64(a + i) ^ load64(b + i);
        if (different) return i + (uint32_t)(__builtin_ctzll(different) >> 3);
    }
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Writes what differs to `out` and returns its bytes, or 0 when it would exceed `limit`. */
static uint32_t make_bytes(const unsigned char *old, const unsigned char *new, uint32_t n, unsigned char *out, uint32_t limit) {
    uint32_t o = 0, at = 0;
    for (uint32_t i = differing_byte(old, new, 0, n), end; i < n; i = differing_byte(old, new, end, n)) {
        for (end = i + 1; end < n; end++)       /* up to two equal bytes are cheaper inside than a new run */
            if (old[end] == new[end] && (end + 1 >= n || old[end + 1] == new[end + 1]) && (end + 2 >= n || old[end + 2] == new[end + 2])) break;
        if (o + 6 + (end - i) > limit) return 0;
        o += put_number(out + o, i - at); o += put_number(out + o, end - i);
        memcpy(out + o, new + i, end - i);
        o += end - i; at = end;
    }
    return o;
}

/* Applies them to a page of `n` bytes; returns 0, or -1 for what would leave the page. */
static int apply_bytes(unsigned char *bytes, uint32_t n, const unsigned char *change, uint32_t size) {
    const unsigned char *end = change + size;
    uint32_t at = 0, skip, run;
    while (change < end) {
        if (get_number(&change, end, &skip) || get_number(&change, end, &run)) return -1;
        if (skip > n - at || run > n - at - skip || run > (size_t)(end - change)) return -1;
        at += skip;
        memcpy(bytes + at, change, run);
        at += run; change += run;
    }
    return 0;
}

#endif
