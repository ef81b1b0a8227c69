"""YAML to plain data, with the line of every key, and without any of YAML's dangers.

PyYAML's parser delivers events; this module builds the data from them itself. That bounds the depth (PyYAML's own
composers recurse, the C one without a check), counts what aliases expand to before anyone walks it, refuses
duplicate keys, and constructs nothing but plain data: of the Python tags, only tuples are understood, as lists.

One difference to YAML 1.1: `1e6` and `3e-4` are numbers here, as everybody expects who writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from legroom.errors import BadInput
from legroom.model.draft import Draft, copied
from legroom.model.draft import Key as Key
from legroom.model.draft import Lines as Lines
from legroom.model.files import KEY

DEEPEST = 60
LONGEST_NUMBER = 400  # characters; `1:1:1:...` in base 60 takes quadratic time
MOST_VALUES = 100_000  # after aliases are expanded; the largest zoo file has about 3,000

_TAG = "tag:yaml.org,2002:"
_SEQUENCES = {f"{_TAG}seq", f"{_TAG}python/tuple", "!", None}
_MAPPINGS = {f"{_TAG}map", "!", None}
_TEXTS = {
    f"{_TAG}str",
    f"{_TAG}timestamp",
    f"{_TAG}value",
    f"{_TAG}merge",
    f"{_TAG}python/str",
    f"{_TAG}python/unicode",
}

_NUMBERS = (f"{_TAG}int", f"{_TAG}float")

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is several times faster, and always optional


class _Resolver(yaml.resolver.Resolver):
    """YAML's implicit types, and floats without a dot."""


_Resolver.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
_resolver: Any = _Resolver()  # its methods have no types
_constructor: Any = yaml.constructor.SafeConstructor()


class _Item(NamedTuple):
    """A part of a mapping or sequence, of a mapping keys and values in turn; `plain` is a word without quotes."""

    value: Any
    line: int
    plain: bool


def parse_yaml(text: str, path: str | None = None) -> tuple[Any, Lines]:
    """Return the data of the one YAML document in `text`, and the 1-based line of each of its keys.

    Raises:
        BadInput: it is not YAML, holds more than one document, a tag that is not plain data, a duplicate key,
            an alias of itself, or more depth or values than any run file has.
    """
    builder = _Builder(text, path)
    try:
        root = builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problem = (error.problem or error.context or "cannot be parsed").replace("\t", "\\t")
        tabbed = line is not None and "\t" in "".join(text.splitlines()[line - 1 : line])
        hint = "indent with spaces, not tabs" if tabbed else "check indentation, colons and quotes"
        raise BadInput(f"not valid YAML: {problem}", path=path, line=line, hint=hint) from None
    except yaml.YAMLError as error:
        raise BadInput(f"not valid YAML: {error}", path=path, hint="run files are UTF-8 text") from None
    return root, _lines_by_path(root, builder.lines)


def run_file_draft(data: Any, lines: Lines, path: str) -> Draft:
    """Return the run of legroom's own file, which has the shape of a Run; its name is its own, or the file's."""
    name = data.get("name")
    if KEY in data:  # run.json of a run folder, which a user may train again or edit
        data = {key: value for key, value in data.items() if key not in (KEY, "asked")}
    return Draft(name if isinstance(name, str) else Path(path).stem, path, copied(data), dict(lines))


def parse_value(text: str, *, what: str) -> Any:
    """Return the data that one value on the command line means: `64`, `1e6`, `[64, 64]`, `{pi: [64]}`, `true`.

    A colon may stand without the space after it that YAML asks for, as shells make it easy to lose one.

    Raises:
        BadInput: it is not a YAML value.
    """
    if "\0" in text:
        raise BadInput(f"{what}: holds a NUL character", hint="write a number, a word, [a, b] or {key: value}")
    spaced = re.sub(r"(?<=[\w\"']):(?=[\w\"'\[{-])", ": ", text)
    for attempt in (text, spaced):
        try:
            value, _ = parse_yaml(attempt)
        except BadInput as error:
            problem = error.message
            continue
        if not (spaced != text and attempt == text and _lost_spaces(value)):
            return value
    raise BadInput(f"{what}: {text!r} is {problem}", hint="write a number, a word, [a, b] or {key: value}")


def _lost_spaces(value: Any) -> bool:
    """Return whether `value` has the form that `{a:1}` takes in YAML: a key `a:1` without a value."""
    return isinstance(value, dict) and any(v is None and ":" in str(k) for k, v in value.items())


class _Builder:
    """Data from events; keeps the line of each key beside the container it stands in."""

    def __init__(self, text: str, path: str | None) -> None:
        self.path = path
        self.lines: dict[int, tuple[Any, dict[Any, int]]] = {}  # id of container -> it (kept alive), lines of keys
        self._events = yaml.parse(text, Loader=_PARSER)
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> Any:
        root, documents = None, 0
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                root, _ = self._built(event, 0)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse("a second YAML document starts here", _line(event), "keep one run per file")
        return root

    def _built(self, event: Any, depth: int) -> tuple[Any, int]:
        """Return the data that begins with an event, and how many values it holds once aliases are expanded."""
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)
            if name not in self._anchors:
                self._refuse(f"alias *{name} has no finished anchor before it", line, "define it with & first")
            return self._anchors[name]
        if isinstance(event, yaml.ScalarEvent):
            built = self._scalar(event, line), 1
        else:
            if depth >= DEEPEST:
                self._refuse(f"nested more than {DEEPEST} levels deep", line, "run files are flat")
            items, size = [], 1
            for each in self._events:
                if isinstance(each, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                    break
                value, inside = self._built(each, depth + 1)
                items.append(_Item(value, _line(each), isinstance(each, yaml.ScalarEvent) and bool(each.implicit[0])))
                size += inside
                if size > MOST_VALUES:
                    what = f"holds more than {MOST_VALUES:,} values once aliases are expanded"
                    self._refuse(what, _line(each), "run files are short")
            make = self._mapping if isinstance(event, yaml.MappingStartEvent) else self._sequence
            built = make(event.tag, items, line), size
        if event.anchor:
            self._anchors[event.anchor] = built
        return built

    def _scalar(self, event: Any, line: int | None) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = _resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        node = yaml.ScalarNode(tag, event.value)
        try:
            if tag in _NUMBERS and len(event.value) > LONGEST_NUMBER:
                raise ValueError(f"{len(event.value):,} characters")
            match tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return _constructor.construct_yaml_bool(node)
                case "int":
                    return _constructor.construct_yaml_int(node)
                case "float":
                    return _constructor.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            kind = tag.removeprefix(_TAG)
            self._refuse(f"{_short(event.value)} is not a valid {kind}", line, "write a plain number")
        if tag not in _TEXTS:
            self._refuse_tag(tag, line)
        return event.value

    def _sequence(self, tag: str | None, items: list[_Item], line: int) -> Any:
        values = [item.value for item in items]
        if tag not in _SEQUENCES:
            self._refuse_tag(str(tag), line)
        self.lines[id(values)] = (values, {number: item.line for number, item in enumerate(items)})
        return values

    def _mapping(self, tag: str | None, items: list[_Item], line: int) -> dict[Any, Any]:
        if tag not in _MAPPINGS:
            self._refuse_tag(str(tag), line)
        own: dict[Any, Any] = {}
        own_lines: dict[Any, int] = {}
        merged: list[Any] = []
        for (key, at, plain), (value, _, _) in zip(items[::2], items[1::2], strict=True):
            if key == "<<" and plain:
                merged += value if isinstance(value, list) else [value]
                continue
            key = _key(key)
            if key is None:
                self._refuse("a key must be a word or a number", at, "write key: value")
            if key in own:
                self._refuse(f"key {key!r} stands here and in line {own_lines[key]}", at, "keep one of them")
            own[key], own_lines[key] = value, at
        for base in merged:
            if not isinstance(base, dict):
                self._refuse("<< must name a mapping", line, "write <<: *anchor")
            for key, value in base.items():
                if key not in own:
                    own[key], own_lines[key] = value, self.lines[id(base)][1][key]
        self.lines[id(own)] = (own, own_lines)
        return own

    def _refuse_tag(self, tag: str, line: int | None) -> None:
        short = tag.replace(_TAG, "!!")
        self._refuse(f"tag {_short(short)} is not plain data", line, "run files hold no Python objects: remove the tag")

    def _refuse(self, message: str, line: int | None, hint: str) -> None:
        raise BadInput(message, path=self.path, line=line, hint=hint)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 0


def _key(value: Any) -> Any:
    """Return `value` as a key; words that YAML 1.1 takes for truth values (`on`, `no`) are words here."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str | int | float) else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _lines_by_path(root: Any, lines: Mapping[int, tuple[Any, dict[Any, int]]]) -> dict[Key, int]:
    """Return the line of every key and list item, by its path from `root`."""
    found: dict[Key, int] = {}
    todo: list[tuple[Key, Any]] = [((), root)]
    while todo:
        path, value = todo.pop()
        if not isinstance(value, dict | list):
            continue
        _, own = lines.get(id(value), (None, {}))
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if key in own:
                found[(*path, key)] = own[key]
            todo.append(((*path, key), child))
    return found
