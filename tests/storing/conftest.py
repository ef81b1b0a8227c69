"""Lets the tests of storage run against another build of the C core: LEGROOM_CORE=/path/to/_core.abi3.so.

`make test-native` uses it for the build with sanitizers. Tests import `legroom.storing._core` as ever: whoever asks for
that name first decides what it means, and this file is imported before any test.
"""

import importlib.util
import os
import sys

import legroom.storing

NAME = "legroom.storing._core"

if path := os.environ.get("LEGROOM_CORE"):
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None and spec.loader is not None, f"LEGROOM_CORE={path} is not an extension module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    legroom.storing._core = module
