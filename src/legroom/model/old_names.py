"""Names as 0.1 wrote them into run files and checkpoints: the reference workloads were modules of legroom then."""

_OLD_PACKAGE, _PACKAGE = "legroom.workloads.", "legroom_workloads."


def current_name(name: str) -> str:
    """Return the name of a module or class of the reference workloads under their present package."""
    return name.replace(_OLD_PACKAGE, _PACKAGE, 1) if name.startswith(_OLD_PACKAGE) else name
