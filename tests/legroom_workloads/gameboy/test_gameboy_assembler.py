"""If these fail, the game that ships is another program than its source says."""

import subprocess
import sys

import pytest

from legroom.errors import BadInput
from legroom_workloads.gameboy.assembler import assemble
from legroom_workloads.gameboy.build_rom import fighter_rom
from legroom_workloads.gameboy.rom import check_rom, rom_title


@pytest.mark.parametrize(
    ("line", "code"),
    [  # by hand, from the processor's table of instructions
        ("nop", "00"),
        ("ld bc, 0x1234", "01 34 12"),
        ("ld [hl+], a", "22"),
        ("ld h, [hl]", "66"),
        ("ld [hl], 7", "36 07"),
        ("ld a, [0xC003]", "FA 03 C0"),
        ("ldh [0x40], a", "E0 40"),
        ("dec [hl]", "35"),
        ("sub b", "90"),
        ("cp 144", "FE 90"),
        ("add hl, de", "19"),
        ("push af", "F5"),
        ("ret nz", "C0"),
        ("call 0x0150", "CD 50 01"),
        ("jp c, 0x0150", "DA 50 01"),
        ("srl l", "CB 3D"),
        ("rr h", "CB 1C"),
        ("swap a", "CB 37"),
        ("bit 7, c", "CB 79"),
        ("ld b, 0 - 8", "06 F8"),
        ("db 1, 0xFF", "01 FF"),
    ],
)
def test_instructions_have_the_bytes_of_the_processor(line, code):
    image, _ = assemble(line, 16)
    expected = bytes.fromhex(code)
    assert bytes(image[: len(expected)]) == expected and not any(image[len(expected) :])


def test_labels_reach_forward_and_back_and_belong_to_the_one_above():
    image, names = assemble(
        """
        one:
        .loop: dec c
            jr nz, .loop     ; three bytes back
            jr .end
            nop
        .end: ret
        two:
        .end: jp one.end
        """,
        32,
    )
    assert bytes(image[:10]) == bytes.fromhex("0D 20 FD 18 01 00 C9 C3 06 00")
    assert names["one.end"] == 6 and names["two.end"] == 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nop\nld q, 1", "game.asm:2: there is no ld q, 1"),
        ("ld a, heatlh", "game.asm:1: heatlh is neither a name nor a number"),
        ("x = 1\nx = 2", "game.asm:2: x is given twice"),
        ("ld a, 256", "game.asm:1: 256 is not a byte"),
        ("jr 0x200", "game.asm:1: 0x200 is 510 bytes away (jp reaches everywhere)"),
        ("org 0x0FFF\njp 0", "game.asm:2: reaches over the end at 0x1000"),
    ],
)
def test_mistakes_are_named_with_their_line(source, message):
    with pytest.raises(BadInput) as problem:
        assemble(source, 0x1000, name="game.asm")
    assert str(problem.value).startswith(message)


def test_the_rom_is_one_for_any_emulator():
    rom = fighter_rom()
    assert len(rom) == 32_768 and rom_title(rom) == "LEGROOMFIGHT"
    check_rom(rom, "it")  # the console's own checksum
    assert int.from_bytes(rom[0x14E:0x150], "big") == (sum(rom) - rom[0x14E] - rom[0x14F]) & 0xFFFF


def test_the_script_writes_it(tmp_path):
    command = [sys.executable, "-m", "legroom_workloads.gameboy.build_rom"]
    done = subprocess.run([*command, str(tmp_path / "f.gb")], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "32,768 bytes" in done.stdout
    assert (tmp_path / "f.gb").read_bytes() == fighter_rom()
    failed = subprocess.run([*command, str(tmp_path / "no" / "f.gb")], capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and failed.stderr.count("\n") == 1
