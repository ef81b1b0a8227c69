"""If this fails, a command overwrites somebody's script with its own output."""

from __future__ import annotations

from pathlib import Path

import pytest

from legroom.cli.main import main

RUN = "legroom: 1\nalgo: PPO\nenv: {id: CartPole-v1, n_envs: 2}\ntotal_timesteps: 4096\n"
SCRIPT = "# legroom shows how it trains\nimport gymnasium\n"
COMMANDS = {
    "fit -o": ["fit", "RUN", "--ram", "8GiB", "--mode", "arithmetic", "-o", "FILE"],
    "fit --html": ["fit", "RUN", "--ram", "8GiB", "--mode", "arithmetic", "--html", "FILE"],
    "predict --html": ["predict", "RUN", "--mode", "arithmetic", "--html", "FILE"],
    "watch --html": ["watch", "--html", "FILE", "--", "true"],
}
REFUSED = COMMANDS | {
    "predict -o": ["predict", "-o", "FILE", "--", "true"],
    "fit program --html": ["fit", "--html", "FILE", "--", "true"],
    "train --html": ["train", "RUN", "--html", "FILE"],
    "train program --html": ["train", "--html", "FILE", "--", "true"],
    "profile --save": ["profile", "CartPole-v1", "--save", "FILE"],
    "profile --report": ["profile", "CartPole-v1", "--report", "FILE"],
    "profile --cprofile": ["profile", "CartPole-v1", "--cprofile", "FILE"],
    "export": ["export", "FOLDER", "FILE"],
}


def carried_out(words: list[str], folder: Path, file: Path) -> int:
    (folder / "run.yaml").write_text(RUN)
    places = {"RUN": str(folder / "run.yaml"), "FILE": str(file), "FOLDER": str(folder)}
    with pytest.raises(SystemExit) as ended:
        main([places.get(word, word) for word in words])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_legroom_did_not_write_stays(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cart.py"
    for content in (SCRIPT, RUN, "<!DOCTYPE html><p>mine</p>", '{"epochs": 3}'):
        file.write_text(content)
        assert carried_out(REFUSED[name], tmp_path, file) == 2
        said = capsys.readouterr().err
        assert "cart.py" in said and "--force" in said and said.count("\n") == 1
        assert file.read_text() == content


def test_a_folder_with_a_page_of_somebody_else_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "watch.html").write_text("<!DOCTYPE html><p>mine</p>")
    assert carried_out(["watch", "--out", "FOLDER", "--", "true"], tmp_path, tmp_path) == 2
    assert "watch.html: --out: already exists" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_its_own_file_is_written_again_and_another_with_force(name: str, tmp_path: Path) -> None:
    file = tmp_path / "made"
    first, *more = COMMANDS[name]
    for words in ([first, *more], [first, *more], [first, "--force", *more]):
        assert carried_out(words, tmp_path, file) in (0, 1)
        made = file.read_bytes()
        if words is not None and b"mine" not in made:
            assert b"legroom" in made
    file.write_text("mine")
    assert carried_out([first, "--force", *more], tmp_path, file) in (0, 1)
    assert file.read_bytes() != b"mine"
