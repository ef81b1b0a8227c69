"""`legroom schema`: the JSON schema of a run file, for editors and other programs."""

from __future__ import annotations

import json

from legroom.backends.base import backend_names
from legroom.cli import options
from legroom.model.run import Run
from legroom.rendering.console import say


def run(json_: options.Json = False) -> None:
    """The JSON schema of a run file.

    \b
    legroom schema > run.schema.json
    """
    schema = Run.model_json_schema()
    properties = schema["properties"]
    properties.pop("source")
    properties["backend"] = dict(sorted({**properties["backend"], "enum": list(backend_names())}.items()))
    say(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2))
