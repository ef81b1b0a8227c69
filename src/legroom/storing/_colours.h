/* Frames of few colours: one byte a pixel, which says which colour, and a table of them. A picture of a game has a third of
 * its bytes then, its three parts are compressed as one, and its table stays the same from frame to frame. */
#ifndef LEGROOM_COLOURS_H
#define LEGROOM_COLOURS_H
#include "_words.h"

enum colours { NO_COLOURS, IN_PLANES, IN_PIXELS };  /* all red, all green, all blue; or red, green, blue of each pixel */
#define PARTS 3u
#define MOST_COLOURS 256u
#define TABLE_BYTES (4 + PARTS * MOST_COLOURS)      /* how many colours, 0: the frame is as it is; red, green, blue of all */
#define SMALLEST_COLOUR_PAGE 1024   /* bytes of a page that a table fits into */
#define COLOUR_BITS 10
#define SETTLED 16u             /* frames after which a full table may begin anew; sooner, a frame is kept as it is */
#define MOST_WAITING 255u

/* The colours of a stream so far, and where to find them. */
typedef struct {
    uint32_t keys[1 << COLOUR_BITS];        /* a colour and a bit, or 0 */
    unsigned char places[1 << COLOUR_BITS];
    unsigned char table[TABLE_BYTES];
    uint32_t count, age;        /* age: frames since the table began */
    uint32_t wait, patience;    /* frames before it is tried again, and how many after the next failure */
} palette;

static void forget_colours(palette *c) { memset(c->keys, 0, sizeof c->keys); memset(c->table, 0, sizeof c->table); c->count = c->age = 0; }

/* Returns the place of a colour, adding it if it is new; MOST_COLOURS where there is no place left. */
static uint32_t place_colour(palette *c, uint32_t colour) {
    uint32_t key = colour | 1u << 24, at = colour * 2654435761u >> (32 - COLOUR_BITS);
    while (c->keys[at]) {
        if (c->keys[at] == key) return c->places[at];
        at = (at + 1) & ((1u << COLOUR_BITS) - 1);
    }
    if (c->count == MOST_COLOURS) return MOST_COLOURS;
    c->keys[at] = key; c->places[at] = (unsigned char)c->count;
    for (uint32_t part = 0; part < PARTS; part++) c->table[4 + part * MOST_COLOURS + c->count] = (unsigned char)(colour >> 8 * part);
    return c->count++;
}

/* Writes each pixel's place; 0 where there are too many colours. */
static int place_pixels(palette *c, const unsigned char *frame, uint32_t pixels, int layout, unsigned char *out) {
    const unsigned char *green = frame + pixels, *blue = green + pixels;
    uint32_t last = 0xFFFFFFFFu, place = 0;
    for (uint32_t i = 0; i < pixels; i++) {
        uint32_t colour = layout == IN_PLANES ? frame[i] | (uint32_t)green[i] << 8 | (uint32_t)blue[i] << 16
                                              : frame[PARTS * i] | (uint32_t)frame[PARTS * i + 1] << 8 | (uint32_t)frame[PARTS * i + 2] << 16;
        if (colour != last) {
            if ((place = place_colour(c, colour)) == MOST_COLOURS) return 0;
            last = colour;
        }
        out[i] = (unsigned char)place;
    }
    return 1;
}

/* The same, with a table that begins anew once it is full; 0 where the frame is to be kept as it is. */
static int find_colours(palette *c, const unsigned char *frame, uint32_t pixels, int layout, unsigned char *out) {
    if (c->wait) { c->wait--; return 0; }
    int few = place_pixels(c, frame, pixels, layout, out);
    if (!few && c->age >= SETTLED) { forget_colours(c); few = place_pixels(c, frame, pixels, layout, out); }
    if (few) { c->age++; c->patience = 1; return 1; }
    forget_colours(c);
    c->wait = c->patience; c->patience = 2 * c->patience + 1 < MOST_WAITING ? 2 * c->patience + 1 : MOST_WAITING;
    return 0;
}

/* Takes over a table that was stored. */
static void recall_colours(palette *c, const unsigned char *table) {
    uint32_t count = load32(table);
    forget_colours(c);
    for (uint32_t i = 0; i < count && i < MOST_COLOURS; i++)
        place_colour(c, table[4 + i] | (uint32_t)table[4 + MOST_COLOURS + i] << 8 | (uint32_t)table[4 + 2 * MOST_COLOURS + i] << 16);
    if (c->count != count) forget_colours(c);       /* not one of ours: some colour is there twice */
}

/* ---- and back ---- */

static void paint_pixels(const unsigned char *in, uint32_t pixels, const unsigned char *table, unsigned char *out) {
    uint32_t colours[MOST_COLOURS], i = 0;
    for (uint32_t k = 0; k < MOST_COLOURS; k++)
        colours[k] = table[k] | (uint32_t)table[MOST_COLOURS + k] << 8 | (uint32_t)table[2 * MOST_COLOURS + k] << 16;
    for (; i + 1 < pixels; i++) memcpy(out + PARTS * i, &colours[in[i]], 4);    /* one byte more, which the next pixel overwrites */
    for (; i < pixels; i++) memcpy(out + PARTS * i, &colours[in[i]], PARTS);
}

static void paint_planes(const unsigned char *in, uint32_t pixels, const unsigned char *table, unsigned char *out) {
    for (uint32_t part = 0; part < PARTS; part++, table += MOST_COLOURS, out += pixels)
        for (uint32_t i = 0; i < pixels; i++) out[i] = table[in[i]];
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(LEGROOM_PORTABLE)
typedef unsigned char sixteen __attribute__((vector_size(16)));
typedef char sixteen_signed __attribute__((vector_size(16)));
#define FEW_COLOURS 64u         /* above, looking up one by one is as fast */
/* Up to FEW_COLOURS, 16 pixels at a time: a look-up in 16 colours is one instruction, which gives 0 for places from 128 on. */
__attribute__((target("ssse3"))) static void paint_few(const unsigned char *in, uint32_t pixels, const unsigned char *table, uint32_t count, unsigned char *out) {
    uint32_t tables = (count + 15) / 16, i = 0;
    sixteen_signed colours[PARTS][FEW_COLOURS / 16];
    for (uint32_t part = 0; part < PARTS; part++) memcpy(colours[part], table + part * MOST_COLOURS, 16 * tables);
    for (; i + 16 <= pixels; i += 16) {
        sixteen places, painted[PARTS] = {{0}};
        memcpy(&places, in + i, 16);
        for (uint32_t k = 0; k < tables; k++, places -= 16) {
            sixteen_signed wanted = (sixteen_signed)(places | ((sixteen)(places > 15) & 128));
            for (uint32_t part = 0; part < PARTS; part++) painted[part] |= (sixteen)__builtin_ia32_pshufb128(colours[part][k], wanted);
        }
        for (uint32_t part = 0; part < PARTS; part++) memcpy(out + part * pixels + i, &painted[part], 16);
    }
    for (; i < pixels; i++)
        for (uint32_t part = 0; part < PARTS; part++) out[part * pixels + i] = table[part * MOST_COLOURS + in[i]];
}
#endif

/* Writes the frame that places and a table stand for; a place that no colour is at is black. */
static void paint(const unsigned char *in, uint32_t pixels, int layout, const unsigned char *table, unsigned char *out) {
    unsigned char colours[PARTS * MOST_COLOURS] = {0};
    uint32_t count = load32(table) < MOST_COLOURS ? load32(table) : MOST_COLOURS;
    for (uint32_t part = 0; part < PARTS; part++) memcpy(colours + part * MOST_COLOURS, table + 4 + part * MOST_COLOURS, count);
    if (layout == IN_PIXELS) { paint_pixels(in, pixels, colours, out); return; }
#ifdef FEW_COLOURS
    if (count <= FEW_COLOURS && __builtin_cpu_supports("ssse3")) { paint_few(in, pixels, colours, count, out); return; }
#endif
    paint_planes(in, pixels, colours, out);
}
#endif
