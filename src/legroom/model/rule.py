"""A Rule: one thing worth knowing about a run or a script, with what, why, an example and the way out.

The page of the documentation is made from its texts (`rules.toml` in its room), and its `look` is the whole of its
logic. A rule that cannot be sure stays silent: a false alarm is a defect.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from legroom.model.finding import Finding, Severity
from legroom.model.subject import Subject


@dataclass(frozen=True)
class Fix:
    """One change: the characters from (line, column) to (end_line, end_column) become `text`.

    Lines are 1-based and columns 0-based counts of characters, as in `ast` but in characters instead of bytes.
    """

    say: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Found:
    """What a rule saw; the rule's code, name and the file are added by whoever asked it.

    Args:
        line: 1-based line in the subject's file; None where it is about the file as a whole.
        severity: instead of the rule's own, where this case is less (or more) grave.
        fix: the mechanical change, where there is one that is certainly right.
        run: the name of the run it is about; shown where the file holds several.
    """

    message: str
    hint: str = ""
    line: int | None = None
    severity: Severity | None = None
    fix: Fix | None = None
    run: str = ""


Look = Callable[[Subject], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule; `what`, `why`, `example` and `remedy` are for people, `look` does the work.

    Args:
        code: LR and three digits, never reused.
        name: a kebab-case slug.
        example: source that the rule finds, as short as it can be.
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    example: str
    remedy: str
    look: Look

    def finding(self, found: Found, path: str) -> Finding:
        """Return the finding as users see it."""
        return Finding(
            self.code, self.name, found.severity or self.severity, found.message, found.hint, path, found.line,
            None if found.fix is None else asdict(found.fix),
        )  # fmt: skip
