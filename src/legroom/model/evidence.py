"""What is known about a run beyond its file: gathered once, then given to every part of the prediction.

The parts do arithmetic on it and never measure, trace or import anything themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.hollow.journal import Event as Event
from legroom.hollow.journal import Rounds as Rounds
from legroom.hollow.journal import Values as Values
from legroom.model.footprint import Assumed, Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Spaces

Mode = Literal["arithmetic", "trace", "auto"]
DeviceName = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class NetTrace:
    """The memory of networks, optimizer and updates: followed on fake tensors, or estimated from shapes."""

    device: Literal["cpu", "cuda"]
    parameters: int  # scalars in the policy, target networks included
    weights: int  # bytes of parameters and buffers, target networks included
    targets: int  # how many of those bytes are target networks
    gradients: int  # bytes once the first update is done
    optimizer: int
    # per phase, bytes alive at that phase's peak beyond weights, gradients and optimizer state, by category: `batch`
    # (inputs made from the buffer), `activations` (kept for backward), `temporaries`
    transient: Mapping[Phase, Mapping[str, int]] = field(default_factory=dict)
    # every allocation on the device in order, for the allocator simulator; empty when estimated
    events: tuple[Event, ...] = ()
    rounds: Rounds | None = None  # which of these are repeated, and how often
    # what each id in `events` is: weights, targets, gradients, optimizer, batch, activations, temporaries or workspace
    labels: Mapping[int, str] = field(default_factory=dict)
    phase_starts: tuple[tuple[int, Phase], ...] = ()  # where in `events` phases begin
    # bytes of input, weight and output of the largest convolution, 0 without one; what a cuDNN workspace is measured
    # against
    convolution: int = 0
    convolution_axes: int = 0  # its spatial dimensions (3 for Conv3d)
    card: str = ""  # what of the card shaped the requests that operators make inside; empty when estimated
    # bytes of one value per time step, sample and unit of the recurrent layers that one backward pass goes through;
    # what cuDNN's reserve space is measured against
    rnn_values: int = 0
    compiles: bool = False  # whether the user's networks import torch's compiler
    known: Known = Known.TRACED  # TRACED, or ARITHMETIC when estimated
    error: float = 0.0  # relative error of `transient` (0 when traced)
    note: str = ""  # why it was not traced, where it was not
    guessed: str = ""  # what of it arithmetic does not know (a network of the user's own); its figures say nothing then
    assumed: tuple[Assumed, ...] = ()  # answers that code got which asked for values
    # bytes by which the peak may be off for what runs there that nobody has modelled, by its name
    unmodelled: Mapping[str, int] = field(default_factory=dict)

    @property
    def traced(self) -> bool:
        return self.known is Known.TRACED


@dataclass(frozen=True)
class Scratch:
    """Host memory a CPU update needs beyond its tensors (oneDNN workspaces, malloc's own), extrapolated to the run."""

    nbytes: int
    error: int
    why: str
    retained: int = 0  # how much malloc still holds between updates, besides weights, gradients and optimizer state


@dataclass(frozen=True)
class Look:
    """What is known of a run's networks and updates, and what there is to say about how."""

    net: NetTrace | None = None  # None where the backend knows its networks otherwise, or not at all
    scratch: Scratch | None = None
    notes: tuple[str, ...] = ()
    unknown: str = ""  # why `net` is a guess, with the way to know; empty where it is not
    unmeasured: bool = False  # an update was to be measured, since it may decide, and could not be


@dataclass(frozen=True)
class ColumnGrowth:
    """How many bytes one part of the observations takes in lean storage, measured while an environment was stepped."""

    item_nbytes: int  # of one observation as a plain array holds it
    n_stack: int  # of how many frames an observation was found to be a stack
    first: float  # the first observation of the first environment
    another: float  # that of each further environment, less where environments show the same; `another_error` is ±
    another_error: float
    current: float  # kept per environment while it is written to
    step: float  # each further step of one environment; `step_error` is ±
    step_error: float
    reset: float  # what beginning an episode takes beyond a step; `reset_error` is ±
    reset_error: float


@dataclass(frozen=True)
class LeanProbe:
    """What stepping the environment for a moment told about lean storage."""

    kind: Literal["rollout", "replay"]
    # by key of the observation ("" where it is no dict); none where all are too small to be stored leanly
    columns: Mapping[str, ColumnGrowth]
    steps: int  # environment steps taken, all environments together, with random actions
    episodes: int  # how many episodes ended in them; `episode_mean` and `episode_std` are of their lengths
    episode_mean: float = 0.0
    episode_std: float = 0.0
    time_limit: int | None = None  # steps after which an episode is cut off, where the environment says so


@dataclass(frozen=True)
class EnvTask:
    """How the environment of a run is to be looked at."""

    # modules that the training process has loaded anyway; not the environment's, where it loads them too
    loaded: tuple[str, ...] = ()
    brings: tuple[str, ...] = ("torch",)  # packages that come with these and that environments use as well
    # what whoever steps it has to know to store its observations as the run would; None where there is nothing to learn
    # from that
    storage: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class EnvMemory:
    """What one process takes for its environments, measured by building two of them and stepping them for a moment."""

    imports: int  # modules that making the first one imports, beyond what the training process has loaded anyway
    first: int  # the first instance, with all that further ones share with it; and each further one
    more: int
    mapped: int  # pages of libraries and data files, which all processes have in common
    script: int = 0  # what the run's own script imports and defines; in every process that imports it
    script_mapped: int = 0  # the same of mapped files
    growth: int = 0  # what an instance took more in the second half of its steps than in the first
    time_limit: int | None = None  # steps after which its episodes are cut off, where all were that ended
    known: Known = Known.MEASURED  # MEASURED, or DEFAULT where the figures are those of its kind
    doubt: int = 0  # ± bytes of an instance and of the script, beyond what any such figure has
    script_doubt: int = 0
    step_s: float | None = None  # seconds of one step of one environment, in the median; None where none was made
    # steps of its episodes with random actions, in the mean; None where none ended in the moment
    episode_mean: float | None = None


@dataclass(frozen=True)
class EnvLook:
    """What building a run's environment told."""

    spaces: Spaces
    # of one instance, its share of what several have in common included; None where it was not measured
    nbytes: int | None = None
    # None where there is nothing to learn or it did not work; then `not_probed` says why
    probe: LeanProbe | None = None
    not_probed: str = ""
    memory: EnvMemory | None = None  # the same in its parts
    not_built: str = ""  # why there is no environment to measure


@dataclass(frozen=True)
class Evidence:
    """Everything the parts may look at besides the run."""

    machine: Machine
    device: DeviceName
    base: Any  # what the library's processes hold before they do anything, as its backend measures and reads it
    net: NetTrace | None = None
    scratch: Scratch | None = None
    env_nbytes: int | None = None  # one environment instance, where it was built and measured
    env: EnvMemory | None = None  # the same in its parts
    env_not_built: str = ""  # why there is no such figure, though the environment was to be built
    unmeasured: bool = False  # an update may decide, and could not be measured
    lean: LeanProbe | None = None  # bytes and speed of lean storage, where the environment was probed
    library_versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what the user should know about how this was gathered
    unseen: tuple[str, ...] = ()  # code of the run's own that decides and that was not imported without --trust
    unknown: tuple[str, ...] = ()  # why the networks' memory is a guess, with the way to know
