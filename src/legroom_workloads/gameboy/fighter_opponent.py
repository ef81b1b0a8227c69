"""The fighter game's program: the opponent, which watches and sometimes errs.

It reacts to what it sees with chances of so many in 256; a button that is mashed is what it has an answer to. Its
numbers come from a shift register whose seed whoever starts a round may write into RAM, so a seed and the buttons
decide the whole round.
"""

OPPONENT = """
; ---- the opponent
think:
    ld a, [0xC100 + TIME]
    or a
    ret nz              ; busy
    ld hl, PATIENCE
    ld a, [0xC000 + STATE]  ; a punch that begins is noticed, a little later
    cp WINDS_PUNCH
    jr nz, .calm
    ld a, [0xC000 + TIME]
    cp NOTICED_AT
    jr z, .decide
.calm:
    ld a, [hl]
    or a
    jr z, .decide
    dec [hl]
    ret
.decide:
    call random
    ld c, a
    call distance
    cp PUNCH_REACH
    jr c, .near
    cp 46
    jr nc, .come
    ld a, [0xC000 + STATE]  ; from just out of reach
    cp WINDS_KICK
    jr z, .far_blow
    cp WINDS_PUNCH
    jr z, .far_blow
    cp PUNCHES
    jr z, .far_blow
    cp RECOVERS
    jr z, .rush
    ld a, c
    cp 40
    jp c, .step_back
    cp 90
    jp c, .wait
.come:
    ld a, c
    cp 24
    jp c, .wait
    ld a, GO_LEFT
    ld b, 5
    jp .set
.far_blow:              ; it will miss, if one stays here
    ld a, c
    cp 100
    jp c, .step_back
    cp 230
    jp c, .short_wait
    jr .come
.rush:
    ld a, GO_LEFT
    ld b, 1
    jp .set
.near:
    ld a, [0xC000 + STATE]
    cp WINDS_PUNCH
    jr z, .sees_punch
    cp PUNCHES
    jr z, .sees_punch
    cp WINDS_KICK
    jr z, .sees_kick
    cp RECOVERS
    jr z, .sees_open
    cp GUARDS
    jr z, .sees_guard
    ld a, c
    cp 84
    jr c, .punch
    cp 116
    jr c, .kick
    cp 150
    jr c, .guard
    cp 190
    jr c, .step_back
    jr .wait
.sees_punch:
    ld a, c
    cp 176
    jr c, .guard
    jr .wait
.sees_kick:
    ld a, c
    cp 176
    jr c, .punch
    jr .step_back
.sees_open:
    ld a, c
    cp 208
    jr c, .punch
    jr .wait
.sees_guard:
    ld a, c
    cp 88
    jr c, .kick
    cp 128
    jr c, .punch
    jr .wait
.punch:
    ld a, PUNCH
    ld b, 0
    jr .set
.kick:
    ld a, KICK
    ld b, 0
    jr .set
.guard:
    ld a, GUARD
    ld b, 3             ; four times the frames of a guard
    jr .set
.step_back:
    ld a, GO_RIGHT
    ld b, 8
    jr .set
.short_wait:
    ld a, NOTHING
    ld b, 1
    jr .set
.wait:
    ld a, NOTHING
    ld b, 6
.set:
    ld [0xC100 + INTENT], a
    ld a, b
    ld [PATIENCE], a
    ret
"""
