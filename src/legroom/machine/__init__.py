"""What there is to run on: `probe()` reads this machine's memory, container limit, GPUs and library versions."""

from legroom.machine.probing import probe as probe
