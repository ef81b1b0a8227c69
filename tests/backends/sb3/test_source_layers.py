"""If these fail, an extractor that stands in a script is missing from a bill by arithmetic, or one is made up."""

import textwrap

import pytest

from legroom.backends.sb3.source_layers import source_layers
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace

RUN = {"algo": "PPO", "env": {"id": "CartPole-v1"}}
IMAGE = BoxSpace(type="box", shape=(3, 64, 64), dtype="uint8")


@pytest.fixture
def read(tmp_path):
    def of(
        body, observation=IMAGE, name="__main__:Net", head="observation_space, features_dim=128, width=16", **arguments
    ):
        script = tmp_path / "train.py"
        lines = textwrap.indent(textwrap.dedent(body), " " * 8)
        script.write_text(f"class Net(Base):\n    def __init__(self, {head}):\n{lines}\n")
        return source_layers(Run.model_validate(RUN | {"source": str(script)}), name, observation, arguments)

    return of


def test_convolutions_and_a_linear_layer(read):
    net = read("""
        channels = observation_space.shape[0]
        self.cnn = nn.Sequential(nn.Conv2d(channels, width, 4, stride=2), nn.ReLU(), nn.Flatten())
        self.linear = nn.Linear(n, features_dim)
    """)
    # (64 - 4) // 2 + 1 = 31; 16 maps of 31 x 31
    maps = 16 * 31 * 31
    assert net.parameters == 3 * 16 * 16 + 16 + maps * 128 + 128
    assert net.kept == 3 * 64 * 64 + maps + 128
    assert (net.features, net.widest, net.convolved) == (128, maps, 3 * 64 * 64 + maps)
    assert net.largest == maps * 128


def test_arguments_of_the_run_count(read):
    body = "self.net = nn.Sequential(nn.Flatten(), nn.Linear(10, width), nn.Tanh(), nn.Linear(width, features_dim))"
    vector = BoxSpace(type="box", shape=(10,), dtype="float32")
    net = read(body, vector, width=100, features_dim=7)
    assert net.parameters == 10 * 100 + 100 + 100 * 7 + 7
    assert (net.features, net.converted, net.kept) == (7, 0, 107)


def test_pooling_and_normalisation(read):
    net = read("""
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(8 * 16, features_dim),
        )
    """)
    maps = 8 * 64 * 64
    assert net.parameters == 3 * 8 * 9 + 8 + 2 * 8 + 128 * 128 + 128
    # the image; the convolution's output, the normalised one, GELU's input; pooled twice; features
    assert net.kept == 3 * 64 * 64 + 3 * maps + 8 * 32 * 32 + 8 * 16 + 128


@pytest.mark.parametrize(
    "body",
    [
        "self.layers = [nn.Linear(10, 10) for _ in range(3)]",
        "for width in widths:\n    self.add(nn.Conv2d(3, width, 3))",
        "self.lstm = nn.LSTM(10, 20)\nself.out = nn.Linear(20, 10)",
        "self.cnn = nn.Conv2d(3, computed(), 3)",
        "self.x = 1",
        "self.cnn = nn.Conv2d(3, 8, 3, padding=-5)",
        "self.cnn = nn.Linear(3, 99999999999)",
        "self.l = nn.Linear(3, " + "1 + " * 3000 + "1)",
    ],
)
def test_what_is_no_plain_row_is_not_known(read, body):
    assert read(body) is None


def test_no_source_nothing_known(read):
    assert read("self.l = nn.Linear(1, 2)", name="elsewhere:Net") is None
    assert read("self.l = nn.Linear(1, 2)", name="__main__:Other") is None
    assert source_layers(Run.model_validate(RUN), "__main__:Net", IMAGE, {}) is None
