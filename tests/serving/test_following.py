"""Following a folder: what is named, what is read, and what it says."""

import http.client
import json
import time
from urllib.parse import quote

import pytest
from tests.serving.ui_server import serving

from legroom.machine.live_log import LIVE, LiveLog, read_live
from legroom.machine.tree import process_memory
from legroom.model.files import seal
from legroom.serving.following import folders_in, told_of
from legroom.units import MIB

RUN = {"name": "cart", "algo": "PPO", "env": {"id": "CartPole-v1"}, "total_timesteps": 1000}
PEAK = {"nbytes": 300 * MIB, "low": 290 * MIB, "high": 310 * MIB, "phase": "update"}


def _training(folder, *, at=None):
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(seal(RUN))
    (folder / "prediction.json").write_bytes(seal({"host": PEAK, "gpu": None, "items": [], "at_host_peak": []}))
    (folder / "progress.csv").write_text(
        "time/total_timesteps,rollout/ep_rew_mean,time/fps\n100,1.5,50\n200,<b>,50\n300,4.5,60\n"
    )
    now = time.time() if at is None else at
    lines = [{"t": now - 2 + i, "host": (100 + 50 * i) * MIB, "phase": "collect"} for i in range(3)]
    lines.append({"t": now, "say": "at step 250: <script> ran out; redone"})
    (folder / LIVE).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"t": 1, "ho')
    return folder


def test_a_running_training_is_told_with_its_prediction_and_its_words(tmp_path):
    told = told_of("cart", _training(tmp_path / "cart"))
    assert told["words"] == "cart trains: step 300 of 1,000. Host 200.0 MiB now, 300.0 MiB predicted."
    assert told["kind"] == "good"
    assert "predicted 300.0 MiB" in told["body"] and "Mean reward" in told["body"]
    assert "&lt;script&gt; ran out" in told["body"] and "<script>" not in told["body"]


def test_above_the_predicted_band_it_says_so(tmp_path):
    folder = _training(tmp_path / "cart")
    LiveLog(folder).memory(311 * MIB, None, phase="update")
    assert told_of("cart", folder)["kind"] == "bad"


def test_one_that_ended_says_how(tmp_path):
    folder = _training(tmp_path / "cart")
    peaks = {"host": {"predicted": 300 * MIB, "measured": 280 * MIB}, "gpu": None}
    retreat = {"step": 200, "why": "the card was full", "what": "redone in halves"}
    outcome = {"status": "finished", "timesteps": 1000, "peaks": peaks, "retreats": [retreat]}
    (folder / "outcome.json").write_bytes(seal(outcome))
    told = told_of("cart", folder)
    assert told["words"] == "cart finished at step 1,000. Host peak 280.0 MiB, 300.0 MiB predicted."
    assert "the card was full" in told["body"]


def test_only_trainings_and_watches_are_named_and_links_are_not_followed(tmp_path):
    runs = tmp_path / "runs"
    _training(runs / "one")
    (runs / "notes").mkdir()
    (runs / "notes/secret.txt").write_text("secret")
    elsewhere = _training(tmp_path / "elsewhere")
    (runs / "link").symlink_to(elsewhere)
    (runs / "two").mkdir()
    (runs / "two/run.json").symlink_to(elsewhere / "run.json")
    assert list(folders_in((runs,))) == ["runs/one"]


def test_a_file_that_is_a_link_is_not_read(tmp_path):
    folder = _training(tmp_path / "cart")
    secret = tmp_path / "secret"
    secret.write_text('{"t": 1, "say": "a secret"}\n')
    (folder / LIVE).unlink()
    (folder / LIVE).symlink_to(secret)
    assert "a secret" not in told_of("cart", folder)["body"]


def test_half_written_and_foreign_files_are_a_line(tmp_path):
    folder = _training(tmp_path / "cart")
    for text in ("", "{", "[]", '"x"', "\x00"):
        (folder / "run.json").write_text(text)
        told = told_of("cart", folder)
        assert told["kind"] == "error" and told["words"].startswith("cart cannot be read now")


def test_news_arrive_while_it_runs(tmp_path):
    folder = _training(tmp_path / "runs/cart")
    with serving("--folder", str(tmp_path / "runs")) as server:
        told = server.ask("GET", "/api/folders").json()
        assert told["roots"] == ["runs"]
        assert [(each["name"], each["kind"]) for each in told["folders"]] == [("runs/cart", "training")]
        for name in ("runs", "runs/..", "/etc", "runs/cart/../.."):
            assert server.ask("GET", f"/api/follow?folder={name}").status == 404
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/api/follow?folder=runs/cart")
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        first = json.loads(stream.readline().removeprefix(b"data: "))
        assert "step 300" in first["words"] and stream.readline() == b"\n"
        with (folder / "progress.csv").open("a") as file:
            file.write("400,9.0,60\n")
        second = json.loads(stream.readline().removeprefix(b"data: "))
        assert "step 400" in second["words"]
        connection.close()


WATCH = {"command": ["a"], "began": 1, "samples": [], "peak": {"host": 1}, "exit_code": 1, "verdict": "ok", "why": "w"}
HOSTILE = {
    "deep": {"run.json": "[" * 100_000},
    "deep watch": {"watch.json": "[" * 100_000},
    "time": {"run.json": seal(RUN).decode(), LIVE: '{"t": 1e300, "say": "hello"}'},
    "height": {"run.json": seal(RUN).decode(), LIVE: f'{{"t": 1, "host": {"9" * 4000}}}\n{{"t": 2, "host": 0}}'},
    "infinite": {"watch.json": json.dumps(WATCH | {"peak": {"host": float("inf")}, "summary": ""})},
    "number": {"watch.json": json.dumps(WATCH | {"command": 5})},
}
MANY = {"many": {"run.json": seal(RUN).decode(), LIVE: '{"t":1,"host":1}\n' * 1_500_000}}


@pytest.mark.parametrize("sent", [HOSTILE, pytest.param(MANY, marks=pytest.mark.slow)], ids=["hostile", "many"])
def test_a_folder_that_somebody_sent_costs_the_page_nothing(tmp_path, sent):
    """Read in the page's own process, many samples take 13 s and 900 MB, and the others end the stream."""
    for name, files in sent.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / "runs" / name / file).write_text(text)
    with serving("--folder", str(tmp_path / "runs")) as server:
        before = process_memory(server.process.pid).uss
        for name in sent:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("GET", f"/api/follow?folder={quote(f'runs/{name}')}")
            told = json.loads(connection.getresponse().readline().removeprefix(b"data: "))
            refused = told["words"].startswith(f"runs/{name} cannot be read now: ")
            assert refused == ((told["kind"], told["body"]) == ("error", ""))
            assert refused or name == "many"  # a quick machine has read them all before the child is ended
            connection.close()
        assert process_memory(server.process.pid).uss < before + 10 * MIB


def test_half_a_character_in_a_name_is_shown_as_a_question_mark(tmp_path):
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/x/run.json").write_text('{"name": "\\ud800"}')
    with serving("--folder", str(tmp_path / "runs")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/follow?folder=runs/x")
        told = json.loads(connection.getresponse().readline().removeprefix(b"data: "))
        assert told["words"].startswith("? trains: step 0")
        connection.close()


def test_the_live_log_keeps_peaks_in_few_lines(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    log = LiveLog(tmp_path)
    for i in range(40_000):  # 20,000 seconds: five and a half hours
        clock[0] += 0.5
        log.memory(999 if i == 30_001 else 100 + i % 7, None)
    samples, said = read_live((tmp_path / LIVE).read_text())
    assert max(sample.host for sample in samples) == 999 and said == []
    assert 3000 < len(samples) < 5000  # 1,000 in the first 500 s, then 1,000 per e-fold: 1000 + 1000 ln 40
