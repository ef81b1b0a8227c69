/* The LZ4 block format for pages of at most 32 KiB, alone or with the page's previous version as dictionary. */
#ifndef LEGROOM_LZ4_H
#define LEGROOM_LZ4_H
#include "_words.h"

/* ---- LZ4 block format, for pages of at most 32 KiB ---- */

#define LZ_BITS 12
static inline uint32_t lz_slot(uint32_t v) { return v * 2654435761u >> (32 - LZ_BITS); }
static inline uint32_t lz_fold(const unsigned char *p) {  /* 12 bytes, so that only long likenesses are found */
    uint64_t v = load64(p) * 0x9E3779B97F4A7C15ull ^ load32(p + 8) * 0xC2B2AE3D27D4EB4Full;
    return (uint32_t)(v >> 32);
}

static inline uint32_t match_length(const unsigned char *in, uint32_t a, uint32_t b, uint32_t most) {
    uint32_t length = 0;
    while (length + 8 <= most) {
        uint64_t different = load64(in + a + length) ^ load64(in + b + length);
        if (different) return length + (uint32_t)(__builtin_ctzll(different) >> 3);
        length += 8;
    }
    while (length < most && in[a + length] == in[b + length]) length++;
    return length;
}

/* Compresses in[start:n] with in[:start] as dictionary; returns the compressed size, or 0 when it would exceed `limit`.
 *
 * With a dictionary, the offset of the last match is tried before the table's candidate: where a picture has moved, one
 * offset fits row after row, while the table remembers only the latest of many alike places. */
static uint32_t lz_compress(const unsigned char *in, uint32_t start, uint32_t n, unsigned char *out, uint32_t limit) {
    uint16_t table[1 << LZ_BITS], far[1 << LZ_BITS];
    memset(table, 0, sizeof table);
    if (n - start < 16) return 0;
    if (start) {
        memset(far, 0, sizeof far);
        for (uint32_t k = 1; k + 16 <= start; k++) far[lz_slot(lz_fold(in + k))] = (uint16_t)k;
    }
    uint32_t i = start ? start : 1, anchor = start, o = 0, last = n - 12, repeat = start;
    while (i < last) {
        uint32_t step = 1 + ((i - anchor) >> 6), word = load32(in + i), s = lz_slot(word), candidate = table[s], length = 0, most = n - 5 - i;
        table[s] = (uint16_t)i;
        if (candidate >= start && candidate < i && candidate && load32(in + candidate) == word) length = match_length(in, candidate, i, most);
        if (start) {
            uint32_t other = i - repeat, longer;
            if (repeat <= i && load32(in + other) == word && (longer = match_length(in, other, i, most)) >= length) { length = longer; candidate = other; }
            if (length < 32 && i + 16 <= n) {
                other = far[lz_slot(lz_fold(in + i))];
                if (other && load32(in + other) == word && (longer = match_length(in, other, i, most)) > length + 4) { length = longer; candidate = other; }
            }
        }
        if (length < 4) { i += step; continue; }
        while (i > anchor && candidate > 0 && in[i - 1] == in[candidate - 1]) { i--; candidate--; length++; }
        repeat = i - candidate;
        uint32_t literals = i - anchor;
        if (o + literals + literals / 255 + length / 255 + 12 > limit) return 0;
        unsigned char *token = out + o++;
        uint32_t rest = literals;
        if (rest >= 15) { *token = 0xF0; for (rest -= 15; rest >= 255; rest -= 255) out[o++] = 255; out[o++] = (unsigned char)rest; }
        else *token = (unsigned char)(rest << 4);
        memcpy(out + o, in + anchor, literals); o += literals;
        out[o++] = repeat & 255; out[o++] = (unsigned char)(repeat >> 8);
        rest = length - 4;
        if (rest >= 15) { *token |= 15; for (rest -= 15; rest >= 255; rest -= 255) out[o++] = 255; out[o++] = (unsigned char)rest; }
        else *token |= (unsigned char)rest;
        i += length; anchor = i;
        if (i < last) table[lz_slot(load32(in + i - 2))] = (uint16_t)(i - 2);
    }
    uint32_t literals = n - anchor, rest = literals;
    if (o + literals + literals / 255 + 2 > limit) return 0;
    unsigned char *token = out + o++;
    if (rest >= 15) { *token = 0xF0; for (rest -= 15; rest >= 255; rest -= 255) out[o++] = 255; out[o++] = (unsigned char)rest; }
    else *token = (unsigned char)(rest << 4);
    memcpy(out + o, in + anchor, literals);
    return o + literals;
}

/* Copies `length` bytes in steps of 16; up to 15 more may be read and written, so both need that room. */
static inline void copy_steps(unsigned char *to, const unsigned char *from, uint32_t length) {
    for (uint32_t k = 0; k < length; k += 16) memcpy(to + k, from + k, 16);
}

/* Copies `length` bytes from shortly before, which may overlap; up to `room` bytes may be written. */
static inline void copy_match(unsigned char *to, const unsigned char *from, uint32_t length, uint32_t room) {
    size_t distance = (size_t)(to - from);
    if (distance == 1) { memset(to, *from, length); return; }
    while (distance < 16 && length) {       /* a short pattern: each copy doubles the distance to its like */
        uint32_t n = distance < length ? (uint32_t)distance : length;
        for (uint32_t k = 0; k < n; k++) to[k] = from[k];
        to += n; length -= n; room -= n; distance += n;
    }
    if (length + 16 <= room) { copy_steps(to, from, length); return; }
    uint32_t k = 0, whole = length & ~15u;
    for (; k < whole; k += 16) memcpy(to + k, from + k, 16);
    for (; k < length; k++) to[k] = from[k];
}

#define SHORT 64u               /* bytes up to which steps are faster than a call of memcpy */

/* Decodes exactly `n` bytes after a dictionary of `n` bytes (or none); returns 0, or -1 for a malformed block. */
static int lz_decode(const unsigned char *in, uint32_t size, unsigned char *out, uint32_t n, const unsigned char *dictionary) {
    const unsigned char *end = in + size;
    uint32_t o = 0;
    while (in < end) {
        uint32_t token = *in++, length = token >> 4, more;
        if (length == 15) do { if (in >= end) return -1; more = *in++; length += more; } while (more == 255);
        uint32_t space = n - o;
        size_t left = (size_t)(end - in);
        if (length > space || length > left) return -1;
        if (length <= SHORT && space >= length + 16 && left >= length + 16) copy_steps(out + o, in, length);
        else memcpy(out + o, in, length);
        o += length; in += length;
        if (in == end) break;
        if (end - in < 2) return -1;
        uint32_t offset = in[0] | (uint32_t)in[1] << 8;
        in += 2;
        length = token & 15;
        if (length == 15) do { if (in >= end) return -1; more = *in++; length += more; } while (more == 255);
        length += 4;
        if (!offset || length > n - o) return -1;
        if (offset > o) {       /* begins in the dictionary, may run on into what is decoded */
            uint32_t back = offset - o, part = length < back ? length : back;
            if (!dictionary || back > n) return -1;
            const unsigned char *from = dictionary + n - back;
            if (part <= SHORT && back >= part + 16 && n - o >= part + 16) copy_steps(out + o, from, part);
            else memcpy(out + o, from, part);
            o += part; length -= part;
        }
        if (length) { copy_match(out + o, out + o - offset, length, n - o); o += length; }
    }
    return o == n ? 0 : -1;
}

#endif
