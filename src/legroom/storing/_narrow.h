/* Small numbers in few bits: bytes below 2, 4 or 16, words and double words whose upper parts are zero, and bytes whose
 * size goes by their place (the channels of a grid: what stands there, its colour, its state). */
#ifndef LEGROOM_NARROW_H
#define LEGROOM_NARROW_H
#include "_words.h"

/* A payload is 4 bytes and the numbers' lowest bits, one after the other. The 4 bytes are either a number's bytes and the
 * bits kept of it, 0, 0; or CHANNELS + their number (3 or 4), the bits kept of each, 4 bits for each of them, 0. */
#define NARROW_HEAD 4u
#define CHANNELS 0x80u
#define CYCLE 3u                /* words after which 3 or 4 channels are at the same places again */
typedef struct { uint32_t unit, bits; } width;      /* bits: of channels, those of each in 4 bits, the first one lowest */

static inline int is_width(width w) {
    return (w.unit == 1 && (w.bits == 1 || w.bits == 2 || w.bits == 4)) || (w.unit == 4 && (w.bits == 8 || w.bits == 16))
           || (w.unit == 8 && (w.bits == 8 || w.bits == 16 || w.bits == 32));
}
/* What words of channels keep, which comes again every CYCLE words: which bits, how many, and how many of a lower half. */
typedef struct { uint64_t masks[CYCLE]; uint32_t bits[CYCLE], half[CYCLE]; } cycle;

/* Returns 0, or -1 where a word keeps more than can be read at once. */
static int find_cycle(width w, cycle *found) {
    uint32_t channels = w.unit - CHANNELS, b[4], most = 0;
    uint64_t m[4];
    if ((channels != 3 && channels != 4) || w.bits >> 4 * channels) return -1;
    for (uint32_t c = 0; c < 4; c++) {
        b[c] = w.bits >> 4 * c & 15;
        if (b[c] > 8) return -1;
        m[c] = ((uint64_t)1 << b[c]) - 1;
    }
    for (uint32_t k = 0; k < CYCLE; k++) {
        uint32_t x = channels == 4 ? 0 : 2 * k % 3, y = channels == 4 ? 1 : (x + 1) % 3, z = channels == 4 ? 2 : (x + 2) % 3;
        uint64_t turn = m[x] | m[y] << 8 | m[z] << 16 | (channels == 4 ? m[3] : m[x]) << 24;
        uint64_t rest = channels == 4 ? turn : m[y] | m[z] << 8 | m[x] << 16 | m[y] << 24;
        found->masks[k] = turn | rest << 32;
        found->half[k] = b[x] + b[y] + b[z] + (channels == 4 ? b[3] : b[x]);
        found->bits[k] = channels == 4 ? 2 * found->half[k] : found->half[k] + b[x] + 2 * b[y] + b[z];
        most = found->bits[k] > most ? found->bits[k] : most;
    }
    return most > 56 ? -1 : 0;
}
static uint32_t channel_bytes(const cycle *y, uint32_t n) {
    uint32_t words = n / 8, whole = words / CYCLE, left = words % CYCLE;
    uint32_t bits = whole * (y->bits[0] + y->bits[1] + y->bits[2]) + (left > 0 ? y->bits[0] : 0) + (left > 1 ? y->bits[1] : 0);
    return NARROW_HEAD + (bits + (n % 8 ? y->half[left] : 0) + 7) / 8;
}
static inline uint32_t narrow_bytes(width w, uint32_t n) {
    cycle y;
    if (w.unit < CHANNELS) return NARROW_HEAD + (n / w.unit * w.bits + 7) / 8;
    return find_cycle(w, &y) ? n : channel_bytes(&y, n);
}

static inline uint32_t bits_of(uint32_t byte) { return byte ? 32 - (uint32_t)__builtin_clz(byte) : 0; }

/* The channels that keep bytes in the fewest bits, given what is seen of them in each word of the cycle. */
static width find_channels(const uint64_t *seen, uint32_t n) {
    uint64_t all = seen[0] | seen[1] | seen[2];
    uint32_t four = (uint32_t)(all | all >> 32), three = 0;
    for (uint32_t k = 0; k < CYCLE; k++) {      /* word k begins with channel 2 * k % 3 */
        uint64_t w = seen[k];
        uint32_t folded = (uint32_t)((w | w >> 24 | w >> 48) & 0xFFFFFF);
        three |= k == 0 ? folded : k == 1 ? folded << 16 | folded >> 8 : folded << 8 | folded >> 16;
    }
    width of_three = {CHANNELS + 3, 0}, of_four = {CHANNELS + 4, 0};
    for (uint32_t c = 0; c < 3; c++) of_three.bits |= bits_of(three >> 8 * c & 255) << 4 * c;
    for (uint32_t c = 0; c < 4; c++) of_four.bits |= bits_of(four >> 8 * c & 255) << 4 * c;
    uint32_t a = narrow_bytes(of_three, n), b = narrow_bytes(of_four, n);
    if ((a < b ? a : b) >= n - n / 8) return (width){0, 0};
    return a < b ? of_three : of_four;
}

/* Whether all bytes of a word are 64 or more. */
static inline int all_wide(uint64_t word) { return ((word >> 6 | word >> 7) & 0x0101010101010101ull) == 0x0101010101010101ull; }

/* Returns the width that keeps `n` bytes (a multiple of 4) in the fewest; unit 0 where none does. */
static width find_width(const unsigned char *p, uint32_t n) {
    uint64_t seen[CYCLE] = {0}, all;
    uint32_t i = 0;
    for (; i + 8 * CYCLE <= n; i += 8 * CYCLE) {
        for (uint32_t k = 0; k < CYCLE; k++) seen[k] |= load64(p + i + 8 * k);
        all = seen[0] | seen[1] | seen[2];
        if (all & 0xFFFF000000000000ull && all & 0xFFFF0000ull && all_wide(seen[0] & seen[1] & seen[2])) return (width){0, 0};
    }
    for (uint32_t k = 0; i < n; k++) {
        unsigned char rest[8] = {0};
        uint32_t some = n - i < 8 ? n - i : 8;
        memcpy(rest, p + i, some);
        seen[k] |= load64(rest);
        i += some;
    }
    all = seen[0] | seen[1] | seen[2];
    uint32_t words = (uint32_t)(all | all >> 32), bytes = words | words >> 16;
    bytes = (bytes | bytes >> 8) & 255;
    width found = {0, 0}, channels;
    if (n % 8 == 0 && !(all >> 8)) found = (width){8, 8};       /* an eighth of it, as one bit of a byte is */
    else if (bytes < 2) found = (width){1, 1};
    else if (n % 8 == 0 && !(all >> 16)) found = (width){8, 16};
    else if (bytes < 4) found = (width){1, 2};
    else if (!(words >> 8)) found = (width){4, 8};
    else if (n % 8 == 0 && !(all >> 32)) found = (width){8, 32};
    else if (bytes < 16) found = (width){1, 4};
    else if (!(words >> 16)) found = (width){4, 16};
    channels = find_channels(seen, n);      /* slower to write and, with some processors, to read */
    if (!channels.unit) return found;
    return !found.unit || narrow_bytes(channels, n) < narrow_bytes(found, n) - narrow_bytes(found, n) / 8 ? channels : found;
}

/* ---- channels: a processor's own instructions where they are fast ---- */

/* Puts the lowest bits of `bits` where `mask` has ones, and back. */
static inline uint64_t deposit(uint64_t bits, uint64_t mask) {
    uint64_t out = 0;
    for (uint32_t i = 0; i < 64; i += 8) {
        uint64_t byte = mask >> i & 255;
        out |= (bits & byte) << i;          /* a byte keeps its lowest bits */
        bits >>= __builtin_popcountll(byte);
    }
    return out;
}
static inline uint64_t extract(uint64_t word, uint64_t mask) {
    uint64_t out = 0;
    for (uint32_t i = 0, at = 0; i < 64; i += 8) {
        uint64_t byte = mask >> i & 255;
        out |= (word >> i & byte) << at;
        at += (uint32_t)__builtin_popcountll(byte);
    }
    return out;
}

/* Decodes `n` bytes from `size` bytes, and reads no more than those: near their end from a copy. */
#define READ_CHANNELS(deposit) { \
    unsigned char last[16] = {0}; \
    const uint64_t a = y->bits[0], b = a + y->bits[1], c = b + y->bits[2], first = y->masks[0], second = y->masks[1], third = y->masks[2]; \
    uint64_t position = 0, word; \
    uint32_t i = 0, k = 0; \
    for (; i + 24 <= n && ((position + b) >> 3) + 8 <= size; i += 24, position += c) { \
        word = deposit(load64(in + (position >> 3)) >> (position & 7), first); memcpy(out + i, &word, 8); \
        word = deposit(load64(in + ((position + a) >> 3)) >> ((position + a) & 7), second); memcpy(out + i + 8, &word, 8); \
        word = deposit(load64(in + ((position + b) >> 3)) >> ((position + b) & 7), third); memcpy(out + i + 16, &word, 8); \
    } \
    for (; i + 8 <= n && (position >> 3) + 8 <= size; i += 8) { \
        word = deposit(load64(in + (position >> 3)) >> (position & 7), y->masks[k]); \
        memcpy(out + i, &word, 8); \
        position += y->bits[k]; k = k + 1 < CYCLE ? k + 1 : 0; \
    } \
    const uint64_t from = size < 8 ? 0 : size - 8; \
    memcpy(last, in + from, size - from); \
    for (; i < n; i += 8) { \
        word = deposit(load64(last + ((position >> 3) - from)) >> (position & 7), y->masks[k]); \
        memcpy(out + i, &word, n - i < 8 ? n - i : 8); \
        position += y->bits[k]; k = k + 1 < CYCLE ? k + 1 : 0; \
    } }

/* Encodes `n` bytes, a multiple of 4, into `size`. */
#define MAKE_CHANNELS(extract) { \
    const unsigned char *end = out + size; \
    uint64_t bits = 0, word; \
    uint32_t held = 0, k = 0; \
    for (uint32_t i = 0; i < n; i += 8, k = k + 1 < CYCLE ? k + 1 : 0) { \
        if (i + 8 <= n) word = load64(in + i); else word = load32(in + i); \
        bits |= extract(word, y->masks[k]) << held; \
        held += y->bits[k]; \
        uint32_t whole = held / 8, left = (uint32_t)(end - out); \
        if (left >= 8) memcpy(out, &bits, 8); else memcpy(out, &bits, left < whole + 1 ? left : whole + 1); \
        out += left < whole ? left : whole; held %= 8; bits >>= 8 * whole; \
    } }

typedef struct {
    void (*read)(const unsigned char *in, uint32_t size, unsigned char *out, uint32_t n, const cycle *y);
    void (*make)(const unsigned char *in, uint32_t n, unsigned char *out, uint32_t size, const cycle *y);
} channel_codec;
static void read_channels(const unsigned char *in, uint32_t size, unsigned char *out, uint32_t n, const cycle *y) READ_CHANNELS(deposit)
static void make_channels(const unsigned char *in, uint32_t n, unsigned char *out, uint32_t size, const cycle *y) MAKE_CHANNELS(extract)
static const channel_codec anywhere = {read_channels, make_channels};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(LEGROOM_PORTABLE)
#define FAST __attribute__((target("bmi2")))
FAST static void read_fast(const unsigned char *in, uint32_t size, unsigned char *out, uint32_t n, const cycle *y) READ_CHANNELS(__builtin_ia32_pdep_di)
FAST static void make_fast(const unsigned char *in, uint32_t n, unsigned char *out, uint32_t size, const cycle *y) MAKE_CHANNELS(__builtin_ia32_pext_di)
static const channel_codec fast = {read_fast, make_fast};
static const channel_codec *codec(void) {
    static const channel_codec *chosen;
    const channel_codec *found = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (found) return found;        /* Zen 1 and 2 have the instructions, but go bit by bit */
    int use = __builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2");
    __atomic_store_n(&chosen, found = use ? &fast : &anywhere, __ATOMIC_RELAXED);
    return found;
}
#else
static inline const channel_codec *codec(void) { return &anywhere; }
#endif

static void make_narrow(const unsigned char *p, uint32_t n, width w, unsigned char *out) {
    const unsigned char head[NARROW_HEAD] = {(unsigned char)w.unit, (unsigned char)w.bits, (unsigned char)(w.bits >> 8), 0};
    memcpy(out, head, NARROW_HEAD); out += NARROW_HEAD;
    if (w.unit > CHANNELS) {
        cycle y;
        find_cycle(w, &y);
        codec()->make(p, n, out, channel_bytes(&y, n) - NARROW_HEAD, &y);
        return;
    }
    uint32_t count = n / w.unit, each = w.bits < 8 ? 8 / w.bits : 1;
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
    width w = {in[0], in[1] | (uint32_t)in[2] << 8};
    if (in[3]) return -1;
    if (w.unit > CHANNELS) {
        cycle y;
        if (find_cycle(w, &y) || size != channel_bytes(&y, n)) return -1;
        codec()->read(in + NARROW_HEAD, size - NARROW_HEAD, out, n, &y);
        return 0;
    }
    if (!is_width(w) || n % w.unit || size != narrow_bytes(w, n)) return -1;
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
