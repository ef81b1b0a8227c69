"""The fighter game's program: what a fighter does in a frame, and whom its blow hits.

Both fighters are updated by the same code. A fighter's fields have the same low byte in a page of its own, so `h` says
whose turn it is and `d` who the other one is: `ld l, STATE` and `ld e, STATE` then reach the same field of either.

What beats what: a punch is faster than a kick and interrupts it, a guard catches a punch (and leaves the puncher open
for long enough to be hit), a kick goes through a guard.
"""

BLOWS = """
; ---- one fighter's frame: h is whose, d the other's
update:
    ld l, TIME
    ld a, [hl]
    or a
    jr z, .free
    dec [hl]
    ret nz
    ld l, STATE         ; what comes after it, and for how long
    ld a, [hl]
    ld c, a
    ld b, 0
    push hl
    ld hl, after
    add hl, bc
    add hl, bc
    ld a, [hl+]
    ld b, [hl]
    pop hl
    ld [hl+], a
    ld [hl], b
    ld l, LANDED
    ld [hl], 0
    ret
.free:
    ld l, INTENT
    ld a, [hl]
    ld l, STATE
    cp PUNCH
    jr z, .punch
    cp KICK
    jr z, .kick
    cp GUARD
    jr z, .guard
    cp GO_LEFT
    jr z, .left
    cp GO_RIGHT
    jr z, .right
    ld [hl], STANDS
    ret
.punch:
    ld [hl], WINDS_PUNCH
    inc l
    ld [hl], PUNCH_WINDUP_TIME
    ret
.kick:
    ld [hl], WINDS_KICK
    inc l
    ld [hl], KICK_WINDUP_TIME
    ret
.guard:
    ld [hl], GUARDS
    inc l
    ld [hl], GUARD_TIME
    ret
.left:
    ld [hl], WALKS
    ld l, X
    dec [hl]
    jr .keep
.right:
    ld [hl], WALKS
    ld l, X
    inc [hl]
.keep:                  ; take the step back if it leads through the other or out of the arena
    ld a, [hl]
    cp LEFTMOST
    jr c, .undo
    cp RIGHTMOST + 1
    jr nc, .undo
    call distance
    cp CLOSEST
    ret nc
.undo:
    ld l, INTENT
    ld a, [hl]
    ld l, X
    cp GO_LEFT
    jr z, .undo_left
    dec [hl]
    ret
.undo_left:
    inc [hl]
    ret

after:                  ; state and frames that follow each state
    db STANDS, 0
    db STANDS, 0
    db PUNCHES, 4
    db RECOVERS, 16
    db KICKS, 5
    db RECOVERS, 24
    db STANDS, 0
    db GUARDS, 0        ; until something else is wanted, so that a guard that is held has no gap
    db STANDS, 0
    db LIES, 0
    db CHEERS, 0

; ---- does a blow land? h strikes, d may be hit
strike:
    ld l, LANDED
    ld a, [hl]
    or a
    ret nz
    call distance
    ld b, a
    ld l, STATE
    ld a, [hl]
    cp PUNCHES
    jr z, .punch
    cp KICKS
    ret nz
    ld a, b
    cp KICK_REACH + 1
    ret nc
    ld c, KICK_DAMAGE
    jr .land
.punch:
    ld a, b
    cp PUNCH_REACH + 1
    ret nc
    ld c, PUNCH_DAMAGE
    ld e, STATE
    ld a, [de]
    cp GUARDS
    jr nz, .land
    ld c, CAUGHT_DAMAGE
    call hurt
    ld l, STATE
    ld [hl], RECOVERS
    inc l
    ld [hl], CAUGHT_TIME
    ld e, TIME          ; whoever caught it is free at once
    ld a, 1
    ld [de], a
    ld a, 0
    ld [PATIENCE], a
    ret
.land:
    call hurt
    ld e, STATE
    ld a, HURTS
    ld [de], a
    ld e, TIME
    ld a, HURT_TIME
    ld [de], a
    ld a, d             ; the hit one is pushed away, as far as there is room
    ld e, X
    cp PLAYER
    jr z, .push_left
    ld a, [de]
    add PUSH
    cp RIGHTMOST
    jr c, .pushed
    ld a, RIGHTMOST
    jr .pushed
.push_left:
    ld a, [de]
    sub PUSH
    cp LEFTMOST
    jr nc, .pushed
    ld a, LEFTMOST
.pushed:
    ld [de], a
    ret

hurt:                   ; take c from the health of d; h's blow has landed
    ld l, LANDED
    ld [hl], 1
    ld e, HEALTH
    ld a, [de]
    sub c
    jr nc, .left
    ld a, 0
.left:
    ld [de], a
    ret
"""
