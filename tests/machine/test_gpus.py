"""GPUs as CUDA would number them. NVML cannot run without one, so a small stand-in plays it."""

from types import SimpleNamespace

import pytest

from legroom.machine.gpus import gpus_by_nvml, read_gpus
from legroom.model.machine import Gpu
from legroom.units import GIB


class FakeNvml:
    """Three cards: `GPU-aa1` (24 GiB, old binding that answers in bytes), `GPU-ab2` (80 GiB), `GPU-cc3` (broken)."""

    class NVMLError(Exception):
        pass

    def __init__(self, driver=True, broken=()):
        self.driver, self.broken, self.running = driver, broken, 0

    def nvmlInit(self):
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.running += 1

    def nvmlShutdown(self):
        self.running -= 1

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):
        if index in self.broken:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-5":
            raise self.NVMLError("Not Found")
        return 1

    def nvmlDeviceGetUUID(self, handle):
        return (b"GPU-aa1", "GPU-ab2", "GPU-cc3")[handle]

    def nvmlDeviceGetName(self, handle):
        return (b"NVIDIA GeForce RTX 3090", "NVIDIA H100 80GB HBM3", "NVIDIA T4")[handle]

    def nvmlDeviceGetMemoryInfo(self, handle):
        total = (24 * GIB, 80 * GIB, 16 * GIB)[handle]
        return SimpleNamespace(total=total, free=total - GIB, used=GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        if handle == 2:
            raise self.NVMLError("Not Supported")
        return ((8, 6), (9, 0))[handle]


RTX = Gpu("NVIDIA GeForce RTX 3090", 24 * GIB, 23 * GIB, (8, 6))
H100 = Gpu("NVIDIA H100 80GB HBM3", 80 * GIB, 79 * GIB, (9, 0))
T4 = Gpu("NVIDIA T4", 16 * GIB, 15 * GIB, None)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, (RTX, H100, T4)),
        ("", ()),
        ("-1", ()),
        ("1", (H100,)),
        ("2, 0", (T4, RTX)),
        ("0,9,1", (RTX,)),
        ("1,1", ()),
        ("GPU-ab2", (H100,)),
        ("GPU-c,GPU-aa", (T4, RTX)),
        ("GPU-a", ()),
        ("GPU-aa1,0", ()),
        ("MIG-5", (H100,)),
        ("MIG-6", ()),
        ("all", ()),
        ("NoDevFiles", ()),
    ],
)
def test_CUDA_VISIBLE_DEVICES_is_respected(visible, expected):
    nvml = FakeNvml()
    assert gpus_by_nvml(nvml, visible) == expected
    assert nvml.running == 0


def test_a_lost_card_does_not_hide_the_others():
    assert gpus_by_nvml(FakeNvml(broken={0}), None) == (H100, T4)
    assert gpus_by_nvml(FakeNvml(broken={0}), "1") == (H100,)


def test_no_driver_is_no_gpu():
    assert gpus_by_nvml(FakeNvml(driver=False), None) == ()


def test_the_real_binding_without_a_driver_is_no_gpu(tmp_path):
    # with a device file the binding is loaded and asked, wherever it is installed
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert isinstance(read_gpus(root=tmp_path, visible=""), tuple)
    assert read_gpus(root=tmp_path / "nothing", visible=None) == ()
