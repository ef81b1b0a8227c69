"""The bill of the card at its peak: by role, by line of the user's source, and what was running.

Roles come from the guest where it knows them: blocks of parameters, gradients and optimizer state at the first steps.
Gradients are other blocks in every iteration; they are known again by their line and size. All others are named by when
they were asked for: in a module's forward pass, outside of one, in a backward pass, in an earlier iteration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from legroom.backends.program.card_books import Block, DeviceBook, ProcessBook
from legroom.model.rehearsal import PHASES, CardSeen, SourceLine
from legroom.predicting.gpu import CUBLAS_BYTES, CUBLAS_HOPPER_BYTES

ROLES = ("weights", "gradients", "optimizer", "activations", "batch", "stored", "temporaries", "scratch", "workspace")
BACKWARD, STEP = 1, 2


def card_seen(books: Iterable[ProcessBook]) -> CardSeen | None:
    """Return what the fullest card held; None where nothing was ever put on one."""
    by_device: dict[int, list[tuple[ProcessBook, DeviceBook]]] = defaultdict(list)
    for book in books:
        for number, device in book.devices.items():
            if device.peak_reserved:
                by_device[number].append((book, device))
    if not by_device:
        return None
    reserved = {number: sum(device.peak_reserved for _, device in users) for number, users in by_device.items()}
    fullest = max(reserved, key=lambda number: reserved[number])
    users = by_device[fullest]
    roles: Counter[str] = Counter()
    lines: Counter[tuple[str, int, str, str, str]] = Counter()
    for book, device in users:
        for block, role in roles_at_peak(book, device):
            roles[role] += block.nbytes
            lines[*_line_of(book, block), role] += block.nbytes
    book, device = max(users, key=lambda user: user[1].peak_reserved)
    highest = next((block for block in device.live_at_peak() if block.birth == device.peak_birth), None)
    return CardSeen(
        device=fullest,
        processes=len(users),
        peak_allocated=sum(device.peak_allocated for _, device in users),
        peak_reserved=reserved[fullest],
        roles=tuple((role, roles[role]) for role in ROLES if roles[role]),
        lines=tuple(SourceLine(*place[:2], nbytes, *place[2:]) for place, nbytes in lines.most_common()),
        at=None
        if highest is None
        else SourceLine(*_line_of(book, highest)[:2], highest.nbytes, *_line_of(book, highest)[2:]),
        phase=PHASES[highest.phase] if highest is not None else "",
        interval=device.peak_interval,
        others=tuple((number, nbytes) for number, nbytes in sorted(reserved.items()) if number != fullest),
    )


def roles_at_peak(book: ProcessBook, device: DeviceBook) -> Iterable[tuple[Block, str]]:
    """Yield every block alive at the peak with its role."""
    blocks = device.live_at_peak()
    known = book.roles["gradients"]
    marks = Counter(book.gradient_marks)
    marks.subtract((block.site, block.nbytes) for block in blocks if block.number in known)
    for block in blocks:
        mark = (block.site, block.nbytes)
        if block.number in book.roles["parameters"]:
            role = "weights"
        elif block.number in book.roles["optimizer"]:
            role = "optimizer"
        elif block.number in known:
            role = "gradients"
        elif block.phase == BACKWARD and marks[mark] > 0:
            marks[mark] -= 1
            role = "gradients"
        else:
            role = _role_by_birth(book, device, block)
        yield block, role


def _role_by_birth(book: ProcessBook, device: DeviceBook, block: Block) -> str:
    if block.nbytes in (CUBLAS_BYTES, CUBLAS_HOPPER_BYTES) and block.interval == 0:
        return "workspace"
    if block.scratch or block.phase == STEP:
        return "scratch"
    if block.phase == BACKWARD:
        return "temporaries"
    if not book.steps and block.birth < book.first_module:
        return "weights"  # what there is before the first forward pass; no step has told yet
    if block.interval < device.peak_interval:
        return "stored"
    return "activations" if book.site(block.site).module else "batch"


def _line_of(book: ProcessBook, block: Block) -> tuple[str, int, str, str]:
    """Return file, line, function and module of a block's request; an empty file where it has no line."""
    site = book.site(block.site)
    file, line, function = site.frames[0] if site.frames else ("", 0, "")
    return file, line, function, site.module
