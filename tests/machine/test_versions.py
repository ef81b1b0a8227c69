"""Versions come from directory names; they must be what an import would report."""

from importlib import metadata

from legroom.machine.versions import all_libraries, is_installed, read_versions


def test_they_agree_with_the_packages_own_metadata():
    found = read_versions()
    for library in all_libraries():
        try:
            expected = metadata.version(library)
        except metadata.PackageNotFoundError:
            assert library not in found
        else:
            assert found[library].startswith(expected)  # torch may carry its build on top


def test_the_first_on_the_path_wins_and_spelling_is_normalised(tmp_path):
    for folder, names in {
        "a": ["stable_baselines3-2.9.2.dist-info", "numpy-2.4.6.dist-info", "jax-notaversion.dist-info"],
        "b": ["numpy-1.26.0.dist-info", "SB3.Contrib-2.9.0.dist-info", "scipy-1.11.4-py3.11.egg-info", "torch"],
    }.items():
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
    found = read_versions(path=[str(tmp_path / "a"), str(tmp_path / "missing"), str(tmp_path / "b")])
    del found["python"]
    assert found == {"numpy": "2.4.6", "stable-baselines3": "2.9.2", "sb3-contrib": "2.9.0", "scipy": "1.11.4"}
    assert is_installed("sb3_contrib", [str(tmp_path / "b")])
    assert not is_installed("sb3-contrib", [str(tmp_path / "a")])


def torch_version(tmp_path, dist, build):
    (tmp_path / dist).mkdir()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '2.14.1'\ndebug = False\n{build}\n")
    return read_versions(path=[str(tmp_path)])["torch"]


def test_torch_says_which_build_it_is(tmp_path):
    cases = [
        ("torch-2.14.1.dist-info", "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None", "2.14.1+cu130"),
        ("torch-2.14.1.dist-info", "cuda: Optional[str] = None\nhip: Optional[str] = None", "2.14.1+cpu"),
        ("torch-2.14.1.dist-info", "cuda = None\nhip = '6.4.4'", "2.14.1+rocm6.4.4"),
        ("torch-2.14.1+cu126.dist-info", "cuda = '12.6'", "2.14.1+cu126"),
    ]
    for number, (dist, build, expected) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert torch_version(folder, dist, build) == expected
