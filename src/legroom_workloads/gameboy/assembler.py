"""A small assembler for the Game Boy's processor, enough for the game that ships with legroom.

An installed toolchain would be one more thing that a user needs before anything runs, and a ROM in the repository would
be bytes that nobody can read. The instruction set is regular, so the table of encodings is computed: registers stand in
the opcode by their number, and what an operand is can be told from its spelling.

Source lines are `label:`, `name = value`, or a mnemonic and its operands; `;` begins a comment. Values are decimal,
`0x…` or names, added and subtracted. A label that begins with a dot belongs to the last one that does not. Directives:
`org address`, `db value, …`, `ds count`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.extend import BadInput

REGISTERS = ("b", "c", "d", "e", "h", "l", "[hl]", "a")
PAIRS = ("bc", "de", "hl", "sp")
STACKED = ("bc", "de", "hl", "af")
CONDITIONS = ("nz", "z", "nc", "c")
ARITHMETIC = ("add", "adc", "sub", "sbc", "and", "xor", "or", "cp")
SHIFTS = ("rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl")
# Operands that are spelt in the table as they are in the source; every other one is a value.
WORDS = {*REGISTERS, *PAIRS, "af", *CONDITIONS, "[bc]", "[de]", "[hl+]", "[hl-]"}


@dataclass(frozen=True)
class Encoding:
    """The opcode's bytes, and how the one value after it is stored: "" none, "byte", "word" or "relative"."""

    opcode: bytes
    value: str = ""

    @property
    def nbytes(self) -> int:
        return len(self.opcode) + {"": 0, "byte": 1, "word": 2, "relative": 1}[self.value]


def assemble(source: str, size: int, *, name: str = "source") -> tuple[bytearray, dict[str, int]]:
    """Return the image of `size` bytes, zero where nothing was written, and the value of every name.

    Raises:
        BadInput: a line that means nothing, a name that is unknown or given twice, a value that does not fit.
    """
    names: dict[str, int] = {}
    image = bytearray(size)
    for last in (False, True):  # names first, since code jumps forward
        address, scope = 0, ""
        for number, label, line in _lines(source):
            try:
                if label:
                    scope = scope if label.startswith(".") else label
                    _define(names, _full(label, scope), address, again=last)
                if not line:
                    continue
                left, equals, right = line.partition("=")
                if equals:
                    _define(names, left.strip(), _value(right, names, scope), again=last)
                    continue
                word, _, rest = line.partition(" ")
                operands = [each.strip() for each in rest.split(",")] if rest.strip() else []
                if word == "org":
                    address = _value(operands[0], names, scope)
                elif word == "ds":
                    address += _value(operands[0], names, scope)
                else:
                    code = _emit(word, operands, names if last else None, scope, address)
                    if address + len(code) > size:
                        raise BadInput(f"reaches over the end at {size:#x}")
                    if last:
                        image[address : address + len(code)] = code
                    address += len(code)
            except BadInput as problem:
                raise BadInput(problem.message, path=name, line=number, hint=problem.hint) from None
    return image, names


def _lines(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, label and the rest of every line that has either."""
    for number, text in enumerate(source.splitlines(), 1):
        line = " ".join(text.partition(";")[0].split())
        found = re.match(r"(\.?\w+):\s*(.*)", line)
        label, rest = (found[1], found[2]) if found else ("", line)
        if label or rest:
            yield number, label, rest


def _full(label: str, scope: str) -> str:
    return scope + label if label.startswith(".") else label


def _define(names: dict[str, int], name: str, value: int, *, again: bool) -> None:
    if not again and name in names:
        raise BadInput(f"{name} is given twice")
    names[name] = value


def _value(text: str, names: dict[str, int], scope: str) -> int:
    total = 0
    for sign, term in re.findall(r"([+-]?)\s*([\w.]+)", text):
        name = _full(term, scope)
        try:
            number = names[name] if name in names else int(term, 0)
        except ValueError:
            raise BadInput(f"{term} is neither a name nor a number") from None
        total += -number if sign == "-" else number
    return total


def _emit(word: str, operands: list[str], names: dict[str, int] | None, scope: str, address: int) -> bytes:
    """Return a line's bytes; while names are still being collected (None), as many zeros."""
    if word == "db":
        return bytes(len(operands)) if names is None else bytes(_byte(_value(each, names, scope)) for each in operands)
    shapes, value = [], ""
    for each in operands:
        if each in WORDS:
            shapes.append(each)
        elif each.startswith("["):
            shapes.append("[n]")
            value = each[1:-1]
        elif word in ("bit", "res", "set"):
            shapes.append(each)
        else:
            shapes.append("n")
            value = each
    key = " ".join([word, ",".join(shapes)]).strip()
    if key not in ENCODINGS:
        raise BadInput(f"there is no {word} {', '.join(operands)}", hint=f"read as {key}")
    encoding = ENCODINGS[key]
    if names is None:
        return bytes(encoding.nbytes)
    if not encoding.value:
        return encoding.opcode
    number = _value(value, names, scope)
    if encoding.value == "word":
        if not 0 <= number < 65_536:
            raise BadInput(f"{value} is {number}", hint="0 to 65535")
        return encoding.opcode + number.to_bytes(2, "little")
    if encoding.value == "relative":
        number -= address + 2
        if not -128 <= number < 128:
            raise BadInput(f"{value} is {number} bytes away", hint="jp reaches everywhere")
    return encoding.opcode + bytes([_byte(number)])


def _byte(number: int) -> int:
    if not -128 <= number < 256:
        raise BadInput(f"{number} is not a byte")
    return number & 0xFF


def _encodings() -> dict[str, Encoding]:
    """Return the encoding of every shape of instruction, `n` standing for a value."""
    table = {
        "nop": 0x00, "rlca": 0x07, "rrca": 0x0F, "rla": 0x17, "rra": 0x1F, "daa": 0x27, "cpl": 0x2F, "scf": 0x37,
        "ccf": 0x3F, "halt": 0x76, "ret": 0xC9, "reti": 0xD9, "jp hl": 0xE9, "di": 0xF3, "ei": 0xFB,
        "ld [bc],a": 0x02, "ld [de],a": 0x12, "ld [hl+],a": 0x22, "ld [hl-],a": 0x32,
        "ld a,[bc]": 0x0A, "ld a,[de]": 0x1A, "ld a,[hl+]": 0x2A, "ld a,[hl-]": 0x3A, "ld sp,hl": 0xF9,
    }  # fmt: skip
    found = {shape: Encoding(bytes([code])) for shape, code in table.items()}

    def put(shape: str, code: int, value: str = "") -> None:
        found[shape] = Encoding(bytes([code]), value)

    for i, one in enumerate(REGISTERS):
        put(f"inc {one}", 0x04 + 8 * i)
        put(f"dec {one}", 0x05 + 8 * i)
        put(f"ld {one},n", 0x06 + 8 * i, "byte")
        for j, other in enumerate(REGISTERS):
            if one != other or one != "[hl]":  # which is halt
                put(f"ld {one},{other}", 0x40 + 8 * i + j)
        for k, operation in enumerate(ARITHMETIC):
            put(f"{operation} {one}", 0x80 + 8 * k + i)
        for k, shift in enumerate(SHIFTS):
            found[f"{shift} {one}"] = Encoding(bytes([0xCB, 8 * k + i]))
        for bit in range(8):
            for k, operation in enumerate(("bit", "res", "set"), 1):
                found[f"{operation} {bit},{one}"] = Encoding(bytes([0xCB, 0x40 * k + 8 * bit + i]))
    for k, operation in enumerate(ARITHMETIC):
        put(f"{operation} n", 0xC6 + 8 * k, "byte")
    for i, pair in enumerate(PAIRS):
        put(f"ld {pair},n", 0x01 + 16 * i, "word")
        put(f"inc {pair}", 0x03 + 16 * i)
        put(f"add hl,{pair}", 0x09 + 16 * i)
        put(f"dec {pair}", 0x0B + 16 * i)
    for i, pair in enumerate(STACKED):
        put(f"pop {pair}", 0xC1 + 16 * i)
        put(f"push {pair}", 0xC5 + 16 * i)
    for i, condition in enumerate(CONDITIONS):
        put(f"jr {condition},n", 0x20 + 8 * i, "relative")
        put(f"ret {condition}", 0xC0 + 8 * i)
        put(f"jp {condition},n", 0xC2 + 8 * i, "word")
        put(f"call {condition},n", 0xC4 + 8 * i, "word")
    put("jr n", 0x18, "relative")
    put("jp n", 0xC3, "word")
    put("call n", 0xCD, "word")
    put("ldh [n],a", 0xE0, "byte")
    put("ldh a,[n]", 0xF0, "byte")
    put("ld [n],a", 0xEA, "word")
    put("ld a,[n]", 0xFA, "word")
    return found


ENCODINGS = _encodings()
