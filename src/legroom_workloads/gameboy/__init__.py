"""A Game Boy fighter on PyBoy (PPO on stacked colour frames)."""

from legroom.extend import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Cartridge": "legroom_workloads.gameboy.cartridge",
        "GameBoyEnv": "legroom_workloads.gameboy.env",
        "fighter_rom": "legroom_workloads.gameboy.build_rom",
        "read_cartridge": "legroom_workloads.gameboy.cartridge",
        "score_policy": "legroom_workloads.gameboy.score",
    },
)
