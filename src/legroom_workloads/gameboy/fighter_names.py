"""The fighter game's names: what is where in RAM, states, and how long and how far everything goes.

`cartridges/fighter.yaml` repeats the addresses for the environment; a test holds the two together.
"""

MOST_HEALTH = 48  # a bar of six tiles, a pixel per point
SECONDS = 30

NAMES = """
; ---- a fighter's fields, and the pages of the two
X = 0x00                ; centre of the body, in pixels
STATE = 0x01
TIME = 0x02             ; frames left in this state; 0: free to do something else
HEALTH = 0x03
LANDED = 0x04           ; this blow has hit already
INTENT = 0x05           ; what the fighter wants to do
PLAYER = 0xC0
ENEMY = 0xC1

; ---- the round
MODE = 0xC200           ; 0 waits for start, 1 fight, 2 over
RESULT = 0xC201         ; 0 not over, 1 won, 2 lost, 3 drawn
SECONDS_LEFT = 0xC202
FRAMES_LEFT = 0xC203    ; of this second
RANDOM = 0xC204         ; two bytes, never both 0
PATIENCE = 0xC206       ; frames before the opponent thinks again
ROUNDS_WON = 0xC207
ROUNDS_LOST = 0xC208
OVER_TIME = 0xC209
SHADOW = 0xC300         ; what goes into the sprite table

; ---- states, which are also poses
STANDS = 0
WALKS = 1
WINDS_PUNCH = 2
PUNCHES = 3
WINDS_KICK = 4
KICKS = 5
RECOVERS = 6
GUARDS = 7
HURTS = 8
LIES = 9
CHEERS = 10

; ---- intents
NOTHING = 0
GO_LEFT = 1
GO_RIGHT = 2
PUNCH = 3
GUARD = 4
KICK = 5

; ---- how long and how far
PUNCH_WINDUP_TIME = 10
KICK_WINDUP_TIME = 20
GUARD_TIME = 4
HURT_TIME = 14
CAUGHT_TIME = 30        ; how long a caught puncher stays open
NOTICED_AT = 6          ; frames before the punch is out
PUNCH_REACH = 26
KICK_REACH = 28
CLOSEST = 18
LEFTMOST = 12
RIGHTMOST = 148
PUSH = 8
PUNCH_DAMAGE = 6
CAUGHT_DAMAGE = 1
KICK_DAMAGE = 8

; ---- hardware
JOYPAD = 0x00
INTERRUPTS = 0x0F
LCD = 0x40
LCD_STATUS = 0x41
SCROLL_Y = 0x42
SCROLL_X = 0x43
LINE = 0x44
LINE_WANTED = 0x45
THINK_LINE = 8
PALETTE = 0x47
PALETTE_0 = 0x48
PALETTE_1 = 0x49
ENABLED = 0xFF
SKY = 179
ROPE = 180
FLOOR = 181
BAR = 160
DIGIT = 169
"""
