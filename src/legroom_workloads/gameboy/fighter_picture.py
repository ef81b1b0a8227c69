"""The fighter game's program, last part: the picture, and room for its tiles."""

PICTURE = """
; ---- the picture: composed in RAM, shown in the blank
compose:
    ld hl, SHADOW
    ld a, [0xC000 + STATE]
    ld e, a
    ld a, [0xC000 + X]
    ld d, a             ; 8 left of the body, and the hardware counts from -8
    ld c, 0x00
    ld b, 8
    call sprites
    ld a, [0xC100 + STATE]
    ld e, a
    ld a, [0xC100 + X]
    add 8               ; mirrored: the first column of tiles is the rightmost
    ld d, a
    ld c, 0x30
    ld b, 0 - 8
    ; fall through

sprites:                ; six sprites of pose e from x = d on, b pixels apart, with attributes c
    ld a, e             ; tile = 12 * pose
    add a
    add e
    add a
    add a
    ld e, a
    push de
    ld a, 104
    call .row
    pop de
    ld a, e
    add 6
    ld e, a
    ld a, 120
.row:
    call .one
    call .one
.one:
    ld [hl+], a
    push af
    ld a, d
    ld [hl+], a
    add b
    ld d, a
    ld a, e
    ld [hl+], a
    inc e
    inc e
    ld a, c
    ld [hl+], a
    pop af
    ret

show:
    ld hl, SHADOW
    ld de, 0xFE00
    ld c, 48
.sprite:
    ld a, [hl+]
    ld [de], a
    inc e
    dec c
    jr nz, .sprite
    ld hl, 0x9821       ; the bars: second row, from column 1 and from column 13
    ld a, [0xC000 + HEALTH]
    call bar
    ld hl, 0x982D
    ld a, [0xC100 + HEALTH]
    call bar
    ld a, [SECONDS_LEFT]
    ld b, DIGIT
.tens:
    cp 10
    jr c, .ones
    sub 10
    inc b
    jr .tens
.ones:
    add DIGIT
    ld [0x982A], a
    ld a, b
    ld [0x9829], a
    ret

bar:                    ; six tiles at hl for a points of health
    ld b, a
    ld c, 6
.tile:
    ld a, b
    cp 8
    jr c, .part
    sub 8
    ld b, a
    ld a, BAR + 8
    jr .put
.part:
    add BAR
    ld b, 0
.put:
    ld [hl+], a
    dec c
    jr nz, .tile
    ret

org 0x2000
poses:
    ds 2112
poses_end:
scenery:
    ds 352
scenery_end:
"""
