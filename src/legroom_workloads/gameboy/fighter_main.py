"""The fighter game's program, first part: start, main loop, rounds, buttons, random numbers, the clock and the end.

The picture is brought up to date in the vertical blank, and the fight goes on some lines into the next frame. Between
the two the processor sleeps, and there the emulator ends a frame: whoever then reads RAM finds a whole state, not one
in which one fighter has moved and the other has not. Sleeping is also what makes the emulator fast.
"""

from legroom_workloads.gameboy.fighter_names import MOST_HEALTH, SECONDS

MAIN = f"""
org 0x40
    reti                ; the vertical blank wakes the main loop, no more
org 0x48
    reti                ; and so does the line THINK_LINE
org 0x100
    nop
    jp begin

org 0x150
begin:
    di
    ld sp, 0xDFFF
.blank:                 ; the picture may only be switched off in the blank
    ldh a, [LINE]
    cp 144
    jr c, .blank
    ld a, 0
    ldh [LCD], a
    ldh [SCROLL_X], a
    ldh [SCROLL_Y], a
    ld hl, poses        ; sprites from tile 0, background from tile 160
    ld de, 0x8000
    ld bc, poses_end - poses
    call copy
    ld hl, scenery
    ld de, 0x8A00
    ld bc, scenery_end - scenery
    call copy
    ld hl, 0x9800       ; the arena: sky, rope, floor
    ld b, SKY
    ld c, 12
    call rows
    ld b, ROPE
    ld c, 1
    call rows
    ld b, SKY
    ld c, 2
    call rows
    ld b, FLOOR
    ld c, 17
    call rows
    ld hl, 0xFE00       ; no sprites yet
    ld c, 160
    ld a, 0
.hide:
    ld [hl+], a
    dec c
    jr nz, .hide
    ld a, 0xE4
    ldh [PALETTE], a
    ldh [PALETTE_0], a
    ld a, 0xD8          ; the opponent's body is lighter
    ldh [PALETTE_1], a
    ld a, 0x5A
    ld [RANDOM], a
    ld a, 0xC3
    ld [RANDOM + 1], a
    ld a, 0
    ld [ROUNDS_WON], a
    ld [ROUNDS_LOST], a
    call new_round
    ld a, 0
    ld [MODE], a
    call compose
    ld a, THINK_LINE
    ldh [LINE_WANTED], a
    ld a, 0x40
    ldh [LCD_STATUS], a
    ld a, 3             ; the vertical blank and that line interrupt, nothing else
    ldh [ENABLED], a
    ld a, 0
    ldh [INTERRUPTS], a
    ld a, 0x97
    ldh [LCD], a
    ei

main:
    halt
    nop
    ldh a, [LINE]
    cp 144
    jr c, main
    call show
.drawing:
    halt
    nop
    ldh a, [LINE]
    cp 144
    jr nc, .drawing
    call random
    call read_buttons
    ld a, [MODE]
    cp 1
    jr z, .fight
    cp 2
    jr z, .over
    bit 7, c            ; start
    jr z, main
    call new_round
    jr main
.over:
    ld hl, OVER_TIME
    dec [hl]
    jr nz, main
    call new_round
    jr main
.fight:
    call buttons_to_intent
    call think
    ld h, PLAYER
    ld d, ENEMY
    call update
    ld h, ENEMY
    ld d, PLAYER
    call update
    ld h, PLAYER
    ld d, ENEMY
    call strike
    ld h, ENEMY
    ld d, PLAYER
    call strike
    call clock
    call judge
    call compose
    jr main

copy:                   ; bc bytes from hl to de
    ld a, [hl+]
    ld [de], a
    inc de
    dec bc
    ld a, b
    or c
    jr nz, copy
    ret

rows:                   ; c rows of tile b at hl
    ld e, 32
.one:
    ld a, b
    ld [hl+], a
    dec e
    jr nz, .one
    dec c
    jr nz, rows
    ret

new_round:
    ld h, PLAYER
    ld a, 56
    call .fighter
    ld h, ENEMY
    ld a, 104
    call .fighter
    ld a, {SECONDS}
    ld [SECONDS_LEFT], a
    ld a, 60
    ld [FRAMES_LEFT], a
    ld a, 0
    ld [RESULT], a
    ld a, 20
    ld [PATIENCE], a
    ld a, 1
    ld [MODE], a
    ret
.fighter:
    ld l, X
    ld [hl+], a
    ld a, 0
    ld [hl+], a
    ld [hl+], a
    ld [hl], {MOST_HEALTH}
    ld l, LANDED
    ld [hl+], a
    ld [hl], a
    ret

; ---- buttons: c is start, select, b, a, down, up, left, right from bit 7 to bit 0
read_buttons:
    ld a, 0x20
    ldh [JOYPAD], a
    ldh a, [JOYPAD]
    ldh a, [JOYPAD]
    cpl
    and 0x0F
    ld c, a
    ld a, 0x10
    ldh [JOYPAD], a
    ldh a, [JOYPAD]
    ldh a, [JOYPAD]
    cpl
    and 0x0F
    swap a
    or c
    ld c, a
    ld a, 0x30
    ldh [JOYPAD], a
    ret

buttons_to_intent:
    ld b, PUNCH
    bit 4, c
    jr nz, .set
    ld b, KICK
    bit 5, c
    jr nz, .set
    ld b, GUARD
    bit 3, c
    jr nz, .set
    ld b, GO_LEFT
    bit 1, c
    jr nz, .set
    ld b, GO_RIGHT
    bit 0, c
    jr nz, .set
    ld b, NOTHING
.set:
    ld a, b
    ld [0xC000 + INTENT], a
    ret

random:                 ; one step of the 16-bit register; a is the new low byte
    push hl
    ld hl, RANDOM
    ld a, [hl+]
    ld l, [hl]
    ld h, a             ; h low, l high: only its period matters
    or l
    jr nz, .some
    inc l
.some:
    ld b, 8             ; eight bits on, so that numbers that follow each other differ
.step:
    srl l
    rr h
    jr nc, .next
    ld a, l
    xor 0xB4
    ld l, a
.next:
    dec b
    jr nz, .step
    ld a, l
    ld [RANDOM + 1], a
    ld a, h
    ld [RANDOM], a
    pop hl
    ret

distance:               ; a is the distance of the two bodies; the player is always on the left
    ld a, [0xC000 + X]
    ld b, a
    ld a, [0xC100 + X]
    sub b
    ret

; ---- the clock and the end
clock:
    ld hl, FRAMES_LEFT
    dec [hl]
    ret nz
    ld [hl], 60
    ld hl, SECONDS_LEFT
    ld a, [hl]
    or a
    ret z
    dec [hl]
    ret

judge:
    ld a, [0xC000 + HEALTH]
    ld b, a
    ld a, [0xC100 + HEALTH]
    ld c, a
    or a
    jr z, .end
    ld a, b
    or a
    jr z, .end
    ld a, [SECONDS_LEFT]
    or a
    ret nz
.end:                   ; whoever has more health has won
    ld a, b
    cp c
    jr z, .drawn
    jr c, .lost
    ld hl, ROUNDS_WON
    inc [hl]
    ld d, 1
    ld b, CHEERS
    ld c, LIES
    jr .over
.lost:
    ld hl, ROUNDS_LOST
    inc [hl]
    ld d, 2
    ld b, LIES
    ld c, CHEERS
    jr .over
.drawn:
    ld d, 3
    ld b, STANDS
    ld c, STANDS
.over:
    ld a, d
    ld [RESULT], a
    ld a, b
    ld [0xC000 + STATE], a
    ld a, c
    ld [0xC100 + STATE], a
    ld a, 120
    ld [OVER_TIME], a
    ld a, 2
    ld [MODE], a
    ret
"""
