"""If these fail, `--rom` and `--cartridge` do not play the user's game, or a mistake in them costs time."""

import pytest

from legroom.cli.main import main
from legroom.reading import read
from legroom.reading.workload_options import with_options
from legroom_workloads.gameboy.build_rom import fighter_rom
from legroom_workloads.gameboy.cartridge import OURS
from legroom_workloads.gameboy.env import GameBoyEnv


def with_game(run, rom=None, cartridge=None):
    given = {"--rom": rom, "--cartridge": cartridge}
    return with_options(run, {name: str(file) for name, file in given.items() if file is not None})


@pytest.fixture
def game(tmp_path):
    """A ROM and a cartridge file of one's own: the fighter without its kick."""
    rom, cartridge = tmp_path / "mine.gb", tmp_path / "mine.yaml"
    rom.write_bytes(fighter_rom())
    lines = [line for line in OURS.read_text().splitlines() if "kick:" not in line]
    cartridge.write_text("\n".join(lines))
    return rom, cartridge


def test_the_game_goes_into_the_run_and_its_actions_into_the_spaces(game):
    rom, cartridge = game
    default = read("gameboy:default")
    run = with_game(default, rom, cartridge)
    assert run.env.kwargs == {"rom": str(rom), "cartridge": str(cartridge)}
    assert run.env.spaces.action.n == 5 and run.env.spaces.observation == default.env.spaces.observation
    assert run.hyperparams == default.hyperparams
    env = GameBoyEnv(**run.env.kwargs)
    assert env.action_space.n == 5 and env.observation_space.shape == (144, 160, 3)
    env.close()


def test_a_relative_path_still_means_the_same_file_elsewhere(game, monkeypatch):
    monkeypatch.chdir(game[0].parent)
    run = with_game(read("gameboy:learn"), *(type(file)(file.name) for file in game))
    assert run.env.kwargs["rom"] == str(game[0])


@pytest.mark.parametrize("command", ["train", "predict", "fit", "profile"])
@pytest.mark.parametrize(
    ("rom", "cartridge", "message"),
    [
        ("missing.gb", "mine.yaml", "missing.gb: no such ROM"),
        ("short.gb", "mine.yaml", "short.gb: 20,000 bytes, and its header says 32,768: too short"),
        ("stub.gb", "mine.yaml", "stub.gb: 100 bytes, too short for a Game Boy ROM"),
        ("text.gb", "mine.yaml", "text.gb: not a Game Boy ROM, or a damaged one"),
        ("mine.gb", None, "mine.gb: a ROM without a cartridge file (--cartridge FILE says"),
        ("mine.gb", "missing.yaml", "missing.yaml: no such file"),
        ("mine.gb", "typo.yaml", "the file has no key 'rewrds' (did you mean rewards?)"),
        ("mine.gb", "other.yaml", "other.yaml: is for the ROM 'ANOTHER', not "),
        ("mine.gb", "mine.gb", "mine.gb: "),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_made(game, command, rom, cartridge, message, capsys):
    folder = game[0].parent
    (folder / "short.gb").write_bytes(game[0].read_bytes()[:20_000])
    (folder / "stub.gb").write_bytes(bytes(100))
    (folder / "text.gb").write_text("no ROM at all\n" * 4000)
    text = game[1].read_text()
    (folder / "typo.yaml").write_text(text.replace("rewards:", "rewrds:"))
    title = next(line for line in text.splitlines() if line.startswith("rom_title:"))
    (folder / "other.yaml").write_text(text.replace(title, "rom_title: ANOTHER"))
    options = ["--rom", str(folder / rom)] + (["--cartridge", str(folder / cartridge)] if cartridge else [])
    with pytest.raises(SystemExit) as end:
        main([command, "gameboy", *options])
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1 and message in said
