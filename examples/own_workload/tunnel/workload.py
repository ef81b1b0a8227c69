"""What legroom knows of the tunnel without importing it. Nearly every command imports this module: keep it light."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from legroom.extend import BadInput, BoxSpace, Extractor, Net, Run, Workload, WorkloadOption, convolutions


def layers(observation: BoxSpace, features: int = 64) -> Net:
    """Return the layers of `TunnelNet`: two convolutions with a ReLU each, flatten, linear, ReLU."""
    return convolutions(observation.shape, ((8, 3, 2, 0), (16, 3, 2, 0)), features, convert=True)


def with_hill(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a hill of the user's own: a text file with a line per row of rock."""
    file = Path(given["--hill"])
    if not file.is_file():
        raise BadInput("no such file", path=file, hint="--hill FILE")
    rows = file.read_text().splitlines()
    shape = (1, len(rows), max(map(len, rows), default=0))
    if min(shape[1:]) < 7:
        raise BadInput(f"is a hill of {shape[1]}x{shape[2]}", path=file, hint="7x7 or more")
    spaces = run.env.spaces.model_copy(update={"observation": BoxSpace(shape, "uint8")})
    kwargs = {**run.env.kwargs, "height": shape[1], "width": shape[2]}
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": spaces}))


WORKLOAD = Workload(
    name="tunnel",
    package="tunnel",  # runs of its environments take its options, whichever file they are in
    runs=Path(__file__).parent / "runs",
    default="long",
    order=("long", "short"),
    options=(WorkloadOption("--hill", "FILE", "a hill of your own, a line of text per row"),),
    with_options=with_hill,
    extractors={"tunnel.nets:TunnelNet": Extractor(layers, sizes=({"features": 64}, {"features": 16}))},
)
