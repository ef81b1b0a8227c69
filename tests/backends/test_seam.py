"""The seam's own promises: five parts of few methods, and every name that a backend gives for one is there."""

import inspect

import pytest

from legroom.backends import base

PARTS = {
    "reader": base.BackendReader, "predictor": base.BackendPredictor, "fitter": base.BackendFitter,
    "checker": base.BackendChecker, "trainer": base.BackendTrainer,
}  # fmt: skip


def methods(part: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(each)
        for name, each in vars(part).items()
        if inspect.isfunction(each) and name[0] != "_"
    }


def test_each_part_has_at_most_ten_methods_and_all_at_most_thirty() -> None:
    counts = [len(methods(part)) for part in PARTS.values()]
    assert max(counts) <= 10 and sum(counts) <= 30


@pytest.mark.parametrize("name", base.backend_names())
def test_what_a_backend_names_of_other_modules_is_there_and_takes_what_the_core_gives(name: str) -> None:
    backend = base.backend_named(name)
    for part, protocol in PARTS.items():
        stated = getattr(backend, part)
        for method, signature in methods(protocol).items():
            given = [each for each in signature.parameters.values() if each.name != "self"]
            called = inspect.signature(getattr(stated, method))
            called.bind(
                *(each for each in given if each.kind is not inspect.Parameter.KEYWORD_ONLY),
                **{each.name: each for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY},
            )
        for attribute in getattr(protocol, "__annotations__", {}):
            assert getattr(stated, attribute) is not None
