/* Small numbers in few bits: bytes below 2, 4 or 16, words and double words whose upper parts are zero. */
#ifndef LEGROOM_NARROW_H
#define LEGROOM_NARROW_H
#include "_words.h"

/* A payload is 4 bytes (bytes of a number, bits kept of it, 0, 0) and the numbers' lowest bits, one after the other. */
#define NARROW_HEAD 4u
typedef struct { uint32_t unit, bits; } width;

static inline int is_width(width w) {
    return (w.unit == 1 && (w.bits == 1 || w.bits == 2 || w.bits == 4)) || (w.unit == 4 && (w.bits == 8 || w.bits == 16))
           || (w.unit == 8 && (w.bits == 8 || w.bits == 16 || w.bits == 32));
}
static inline uint32_t narrow_bytes(width w, uint32_t n) { return NARROW_HEAD + (n / w.unit * w.bits + 7) / 8; }

/* Returns the width that keeps `n` bytes (a multiple of 4) in the fewest; unit 0 where none does. */
static width find_width(const unsigned char *p, uint32_t n) {
    uint64_t seen = 0, a = 0, b = 0;
    uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (uint32_t k = 0; k < 64; k += 16) { a |= load64(p + i + k); b |= load64(p + i + k + 8); }
        if ((a | b) & 0xF0F0F0F000000000ull && ((a | b) & 0xFFFF0000ull)) return (width){0, 0};
    }
    for (; i + 8 <= n; i += 8) a |= load64(p + i);
    seen = a | b;
    uint32_t words = (uint32_t)(seen | seen >> 32), bytes;
    if (i < n) words |= load32(p + i);
    bytes = words | words >> 16; bytes = (bytes | bytes >> 8) & 255;
    if (n % 8 == 0 && !(seen >> 8)) return (width){8, 8};       /* an eighth of it, as one bit of a byte is */
    if (bytes < 2) return (width){1, 1};
    if (n % 8 == 0 && !(seen >> 16)) return (width){8, 16};
    if (bytes < 4) return (width){1, 2};
    if (!(words >> 8)) return (width){4, 8};
    if (n % 8 == 0 && !(seen >> 32)) return (width){8, 32};
    if (bytes < 16) return (width){1, 4};
    if (!(words >> 16)) return (width){4, 16};
    return (width){0, 0};
}

static void make_narrow(const unsigned char *p, uint32_t n, width w, unsigned char *out) {
    uint32_t count = n / w.unit, each = w.bits < 8 ? 8 / w.bits : 1;
    const unsigned char head[NARROW_HEAD] = {(unsigned char)w.unit, (unsigned char)w.bits, 0, 0};
    memcpy(out, head, NARROW_HEAD); out += NARROW_HEAD;
    if (w.unit > 1) {
        for (uint32_t i = 0; i < count; i++) memcpy(out + i * (w.bits / 8), p + i * w.unit, w.bits / 8);
        return;
    }
    for (uint32_t i = 0; i < count; i += each) {
        uint32_t packed = 0;
        for (uint32_t k = 0; k < each && i + k < count; k++) packed |= (uint32_t)p[i + k] << k * w.bits;
        *out++ = (unsigned char)packed;
    }
}

/* The numbers that one byte stands for, in 8, 4 or 2 bytes. */
static inline uint64_t spread_bits(uint64_t b) {
    return ((((b * 0x0101010101010101ull) & 0x8040201008040201ull) + 0x7F7F7F7F7F7F7F7Full) >> 7) & 0x0101010101010101ull;
}
static inline uint32_t spread_pairs(uint32_t b) { return (b & 3) | (b & 0xC) << 6 | (b & 0x30) << 12 | (b & 0xC0) << 18; }
static inline uint16_t spread_halves(uint32_t b) { return (uint16_t)((b & 15) | (b & 0xF0) << 4); }

#define WIDEN(from, to) for (uint32_t i = 0; i < count; i++) { from v; to t; memcpy(&v, in + i * sizeof v, sizeof v); t = v; memcpy(out + i * sizeof t, &t, sizeof t); } return 0
#define SPREAD(type, function, each) { uint32_t i = 0; \
    for (; (i + 1) * each <= n; i++) { type t = function(in[i]); memcpy(out + i * each, &t, each); } \
    if (i * each < n) { type t = function(in[i]); memcpy(out + i * each, &t, n - i * each); } return 0; }

/* Decodes exactly `n` bytes; returns 0, or -1 for a malformed payload. */
static int read_narrow(const unsigned char *in, uint32_t size, unsigned char *out, uint32_t n) {
    if (size < NARROW_HEAD) return -1;
    width w = {in[0], in[1]};
    if (!is_width(w) || in[2] || in[3] || n % w.unit || size != narrow_bytes(w, n)) return -1;
    uint32_t count = n / w.unit;
    in += NARROW_HEAD;
    switch (w.unit << 8 | w.bits) {
    case 1 << 8 | 1: SPREAD(uint64_t, spread_bits, 8)
    case 1 << 8 | 2: SPREAD(uint32_t, spread_pairs, 4)
    case 1 << 8 | 4: SPREAD(uint16_t, spread_halves, 2)
    case 4 << 8 | 8: WIDEN(uint8_t, uint32_t);
    case 4 << 8 | 16: WIDEN(uint16_t, uint32_t);
    case 8 << 8 | 8: WIDEN(uint8_t, uint64_t);
    case 8 << 8 | 16: WIDEN(uint16_t, uint64_t);
    default: WIDEN(uint32_t, uint64_t);
    }
}
#endif
