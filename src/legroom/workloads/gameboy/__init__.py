"""A Game Boy fighter on PyBoy (PPO on stacked colour frames)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Cartridge": "legroom.workloads.gameboy.cartridge",
        "GameBoyEnv": "legroom.workloads.gameboy.env",
        "fighter_rom": "legroom.workloads.gameboy.build_rom",
        "read_cartridge": "legroom.workloads.gameboy.cartridge",
        "score_policy": "legroom.workloads.gameboy.score",
    },
)
