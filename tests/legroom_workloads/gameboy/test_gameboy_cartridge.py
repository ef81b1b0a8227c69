"""If these fail, a cartridge file with a mistake is taken, or refused without saying where."""

import pytest

from legroom.errors import BadInput
from legroom_workloads.gameboy.cartridge import Place, read_cartridge

GOOD = """cartridge: 1
name: a game
memory:
  health: 0xC003
  enemy: {address: 0xC010, bytes: 2}
  coins: {address: 0xD000, bytes: 2, bcd: true}
actions:
  - wait: []
  - jump: [a, right]
round:
  won_when: {enemy: 0}
  max_frames: 100
rewards:
  per_point_lost: {enemy: 0.5}
"""


def read(tmp_path, text):
    path = tmp_path / "game.yaml"
    path.write_text(text)
    return read_cartridge(path)


def test_a_small_file_is_enough(tmp_path):
    game = read(tmp_path, GOOD)
    assert game.name == "a game" and game.rom_title == "" and game.boot == () and game.seed_to is None
    assert game.memory["enemy"] == Place(0xC010, 2) and game.actions["jump"] == ("a", "right")
    assert game.won_when == {"enemy": 0} and not game.lost_when and game.per_point_lost == {"enemy": 0.5}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cartridge: 1", "cartridge: 2", "game.yaml: not a cartridge file (its first line is cartridge: 1)"),
        ("0xC003", "0x1003", "game.yaml:4: memory.health is at 0x1003 (an address in RAM, 0x8000 to 0xFFFF)"),
        ("0xC003", "here", "game.yaml:4: memory.health is at 'here'"),
        ("0xC010, bytes: 2", "0xFFFF, bytes: 2", "game.yaml:5: memory.enemy is at 0xffff"),
        ("bytes: 2}", "bytes: 3}", "game.yaml:5: memory.enemy.bytes is 3 (a whole number, 1 to 2)"),
        ("[a, right]", "[a, rigth]", "game.yaml:9: actions[1].jump is 'rigth' (did you mean right?)"),
        ("- wait: []", "- wait", "game.yaml:8: actions[0] is 'wait' (a name and its buttons: punch: [a])"),
        ("won_when: {enemy: 0}", "won_when: {enmy: 0}", "game.yaml:11: round.won_when has no key 'enmy' (did you mean"),
        ("won_when: {enemy: 0}", "won_when: {enemy: -1}", "game.yaml:11: round.won_when.enemy is -1"),
        ("  won_when: {enemy: 0}\n", "", "game.yaml:10: no condition says when a round is over"),
        ("  max_frames: 100\n", "", "game.yaml:10: round has no max_frames"),
        ("enemy: 0.5", "enemy: much", "game.yaml:14: rewards.per_point_lost.enemy is 'much' (a number)"),
        ("rewards:", "reward:", "game.yaml:13: the file has no key 'reward' (did you mean rewards?)"),
        ("name: a game\n", "", "game.yaml: the file has no name"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(BadInput) as problem:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert str(problem.value).startswith(f"{tmp_path}/{message}") and "\n" not in str(problem.value)
