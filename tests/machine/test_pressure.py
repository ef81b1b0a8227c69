from legroom.machine.cgroup import read_pressure

MACHINE = "some avg10=9.00 avg60=1.00 avg300=0.10 total=5\nfull avg10=2.50 avg60=0.30 avg300=0.05 total=3\n"


def test_the_share_of_the_time_in_which_everything_stands_still(tmp_path):
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/memory").write_text(MACHINE)
    assert read_pressure(tmp_path) == 0.025


def test_the_container_s_own_pressure_counts_before_the_machine_s(tmp_path):
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/memory").write_text(MACHINE)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/cgroup").write_text("0::/box\n")
    (tmp_path / "proc/self/mountinfo").write_text("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "sys/fs/cgroup/box").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/box/memory.pressure").write_text("full avg10=61.00 avg60=0 avg300=0 total=1\n")
    assert read_pressure(tmp_path) == 0.61


def test_a_kernel_that_does_not_count_it_says_nothing(tmp_path):
    assert read_pressure(tmp_path) is None
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/memory").write_text("full avg10=broken\n\nrubbish")
    assert read_pressure(tmp_path) is None
