"""YAML to plain data, with the line of every key, and without any of YAML's dangers.

PyYAML's parser delivers events; this module builds the data from them with a stack of its own. That bounds the depth
(its composers recurse, the C one without a check), counts what aliases expand to before anyone walks it, refuses
duplicate keys, and constructs nothing but plain data: of the Python tags, only the ordered dicts and tuples that the
zoo writes into its saved `config.yml` are understood, as dicts and lists.

One difference to YAML 1.1: `1e6` and `3e-4` are numbers here, as everybody expects who writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
_ORDERED_DICTS = {
    f"{_TAG}python/object/apply:collections.OrderedDict",
    f"{_TAG}omap",
}
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


@dataclass
class _Open:
    """A mapping or sequence that is being built."""

    event: Any
    values: list[Any] = field(default_factory=list)  # a mapping's keys and values alternate
    lines: list[int] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)  # whether a scalar stood there without quotes
    size: int = 1


def parse_yaml(text: str, path: str | None = None) -> tuple[Any, Lines]:
    """Return the data of the one YAML document in `text`, and the 1-based line of each of its keys.

    Raises:
        BadInput: it is not YAML, holds more than one document, a tag that is not plain data, a duplicate key,
            an alias of itself, or more depth or values than any run file has.
    """
    builder = _Builder(path)
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problem = (error.problem or error.context or "cannot be parsed").replace("\t", "\\t")
        tabbed = line is not None and "\t" in "".join(text.splitlines()[line - 1 : line])
        hint = "indent with spaces, not tabs" if tabbed else "check indentation, colons and quotes"
        raise BadInput(f"not valid YAML: {problem}", path=path, line=line, hint=hint) from None
    except yaml.YAMLError as error:
        raise BadInput(f"not valid YAML: {error}", path=path, hint="run files are UTF-8 text") from None
    return builder.root, _lines_by_path(builder.root, builder.lines)


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

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.root: Any = None
        self.lines: dict[int, tuple[Any, dict[Any, int]]] = {}  # id of container -> it (kept alive), lines of keys
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1 if event.start_mark else None
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._refuse("a second YAML document starts here", line, "keep one run per file")
            case yaml.ScalarEvent():
                plain = bool(event.implicit[0])
                value = self._scalar(event, line)
                self._anchor(event, value, 1)
                self._add(value, line, plain, 1)
            case yaml.AliasEvent():
                name = str(event.anchor)
                if name not in self._anchors:
                    self._refuse(f"alias *{name} has no finished anchor before it", line, "define it with & first")
                value, size = self._anchors[name]
                self._add(value, line, False, size)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self._stack) >= DEEPEST:
                    self._refuse(f"nested more than {DEEPEST} levels deep", line, "run files are flat")
                self._stack.append(_Open(event))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                start = done.event.start_mark.line + 1
                is_map = isinstance(event, yaml.MappingEndEvent)
                value = self._mapping(done, start) if is_map else self._sequence(done, start)
                self._anchor(done.event, value, done.size)
                self._add(value, start, False, done.size)

    def _anchor(self, event: Any, value: Any, size: int) -> None:
        if event.anchor:
            self._anchors[event.anchor] = (value, size)

    def _add(self, value: Any, line: int | None, plain: bool, size: int) -> None:
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.values.append(value)
        top.lines.append(line or 0)
        top.plain.append(plain)
        top.size += size
        if top.size > MOST_VALUES:
            self._refuse(
                f"holds more than {MOST_VALUES:,} values once aliases are expanded", line, "run files are short"
            )

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

    def _sequence(self, done: _Open, line: int) -> Any:
        tag = done.event.tag
        if tag in _ORDERED_DICTS:
            return self._ordered_dict(done, line)
        if tag not in _SEQUENCES:
            self._refuse_tag(tag, line)
        self.lines[id(done.values)] = (done.values, dict(enumerate(done.lines)))
        return done.values

    def _ordered_dict(self, done: _Open, line: int) -> dict[Any, Any]:
        """Return the dict that `!!python/object/apply:collections.OrderedDict` holds as [[[key, value], ...]]."""
        pairs: Any = done.values
        if len(pairs) == 1 and isinstance(pairs[0], list) and all(isinstance(p, list) for p in pairs[0]):
            pairs = pairs[0]
        if not all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str | int) for p in pairs):
            self._refuse("an ordered dict must be a list of [key, value] pairs", line, "write a plain mapping")
        result = dict(pairs)
        self.lines[id(result)] = (result, {p[0]: self.lines[id(p)][1][0] for p in pairs})
        return result

    def _mapping(self, done: _Open, line: int) -> dict[Any, Any]:
        if done.event.tag not in _MAPPINGS:
            self._refuse_tag(done.event.tag, line)
        own: dict[Any, Any] = {}
        own_lines: dict[Any, int] = {}
        merged: list[Any] = []
        for i in range(0, len(done.values) - 1, 2):
            key, value, at = done.values[i], done.values[i + 1], done.lines[i]
            if key == "<<" and done.plain[i]:
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
