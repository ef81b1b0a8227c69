"""A missing package is one line with the way out; a defect of ours stays a defect."""

import pytest

from legroom.errors import MissingExtra
from legroom.extras import needs, require
from legroom.installing import install_command


def test_a_missing_package_names_its_extra():
    with pytest.raises(MissingExtra) as raised, needs("sb3", what="following the networks"):
        import no_such_package.inner  # noqa: F401
    wanted = "following the networks needs no_such_package, which is not installed"
    assert str(raised.value) == f"{wanted} ({install_command('sb3', 'no_such_package')})"


@pytest.mark.parametrize("module", ["legroom.no_such_module", "json.no_such_module"])
def test_a_missing_module_of_ours_or_of_the_standard_library_is_no_missing_extra(module):
    with pytest.raises(ModuleNotFoundError), needs("sb3", what="it"):
        __import__(module)


def test_packages_are_asked_for_without_being_imported():
    require("sb3", ("json",), what="training")
    with pytest.raises(MissingExtra, match=r"training needs no_such_package"):
        require("sb3", ("json", "no_such_package"), what="training")


def test_type_checkers_and_the_interpreter_find_public_names_in_the_same_modules():
    import ast
    import inspect

    import legroom
    from legroom.backends import exports

    def typed(module):
        block = next(node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If))
        return {node.names[0].name: node.module for node in block.body if isinstance(node, ast.ImportFrom)}

    handed_on = dict.fromkeys(exports.EXPORTS, exports.__name__)
    assert typed(exports) == exports.EXPORTS
    assert typed(legroom) == legroom.EXPORTS | handed_on
