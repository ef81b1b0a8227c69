"""Branches that an assumed value kept from running: those that take or keep GPU memory make the verdict unknown.

In the programs, `# read` is where the value was read, `# unseen` did not run, `# named` neither, and decides.
`# ran` did, and how often decides.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from legroom.backends.program.undecided import undecided_places

DECIDES = {
    "kept": """
        if loss > best:  # read
            kept.append(out)  # named
        """,
    "kept by a name": """
        score = out.max().item()  # read
        if score > threshold:
            memory.append(out)  # named
        """,
    "kept by a name of a name": """
        error = loss.item()  # read
        worse = error > best
        if worse:
            self.snapshot = net(x)  # named
        """,
    "until it is small": """
        while residual > tolerance:  # read
            history.append(solve(x))  # named
        """,
    "one of each kind": """
        prototypes = {}
        kind = net(x).argmax().item()  # read
        if kind not in prototypes:
            prototypes[kind] = torch.zeros(512, 512)  # ran
        """,
    "as many passes as it says": """
        passes = int(out.mean().item()) + 1  # read
        for _ in range(min(passes, 100)):
            x = torch.tanh(net(x))  # ran
        """,
    "until it is small, and began": """
        while (states[-1] - goal).norm().item() > 0.1:  # read
            states.append(solve(states[-1]))  # ran
        """,
    "until the end token": """
        for _ in range(longest):
            cache = torch.cat([cache, layer(x)], 1)  # ran
            token = head(x).argmax(-1)
            if (token == end).all():  # read
                break
        """,
    "steps of a solver": """
        while t < 1.0:
            error = (once - twice).norm().item()  # read
            if error > tolerance:
                h = h / 2  # unseen
                continue  # unseen
            y, t = twice, t + h
            states.append(y)  # ran
        """,
    "a graph until it halts": """
        while (total < 0.99).any():  # read
            state = cell(x, state)  # ran
        """,
    "otherwise": """
        if ratio.mean() < 1:  # read
            rate = 0.5
        else:
            bank = torch.cat([bank, out])  # named
        """,
}
NOTHING = {
    "a row of a table": """
        table = torch.zeros(100, 4)
        best = net(x).argmax().item()  # read
        table[best] = out
        """,
    "until an episode ends": """
        action = policy(obs).argmax().item()  # read
        while not over:
            obs, reward, over = env.step(action)
            kept.append(obs)
        """,
    "logged": """
        value = loss.item()  # read
        if value > 10:
            print("large", value)  # unseen
        """,
    "checked": """
        if torch.isnan(loss).any():  # read
            raise FloatingPointError(str(net(x)))  # unseen
        """,
    "stopped early": """
        for batch in loader:
            if approx_kl > 1.5 * target:  # read
                break  # unseen
        """,
    "the best is saved": """
        score = loss.item()  # read
        if score < best:
            best = score  # unseen
            torch.save(net.state_dict(), "best.pt")  # unseen
        """,
    "the rate": """
        if loss > last:  # read
            for group in optimizer.param_groups:  # unseen
                group["lr"] = group["lr"] * 0.5  # unseen
        """,
    "it ran": """
        if loss > best:  # read
            kept.append(out)
        """,
    "trained until it is good": """
        for epoch in range(100):
            state = cell(x, state.detach())
            loss = head(state).mean()
            loss.backward()
            score = loss.item()  # read
            if score < 0.1:
                break  # unseen
        """,
    "patience": """
        for epoch in range(100):
            train()
            score = validate().item()  # read
            if score < best:
                best, patience = score, 0
            else:
                patience += 1  # unseen
                if patience > 10:  # unseen
                    break  # unseen
            history.append({"epoch": epoch, "score": score})
        """,
    "numbers": """
        if loss > best:  # read
            history.append(loss.item())  # unseen
        """,
}


def _places(folder: Path, source: str, *, own: bool = True) -> tuple[list[int], list[int]]:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(source).strip() + "\n")
    text = script.read_text().splitlines()
    marked = {mark: [at for at, each in enumerate(text, 1) if f"# {mark}" in each] for mark in ("read", "named", "ran")}
    ran = {at for at, each in enumerate(text, 1) if "# unseen" not in each and "# named" not in each}
    found = undecided_places([(str(script), marked["read"][0])], {str(script): ran} if own else {})
    return [place.line for place in found], marked["named"] + marked["ran"]


@pytest.mark.parametrize("name", DECIDES)
def test_a_branch_that_takes_or_keeps_memory_is_named(tmp_path: Path, name: str) -> None:
    found, expected = _places(tmp_path, DECIDES[name])
    assert found == expected


@pytest.mark.parametrize("name", NOTHING)
def test_a_branch_that_does_not_is_not(tmp_path: Path, name: str) -> None:
    assert _places(tmp_path, NOTHING[name])[0] == []


def test_in_a_library_only_what_is_kept_counts(tmp_path: Path) -> None:
    assert _places(tmp_path, DECIDES["kept"], own=False)[0] == [2]
    assert _places(tmp_path, DECIDES["otherwise"], own=False)[0] == []


def test_the_history_of_lbfgs() -> None:
    lbfgs = pytest.importorskip("torch.optim.lbfgs").__file__
    lines = Path(lbfgs).read_text().splitlines()
    (read,) = [at for at, each in enumerate(lines, 1) if "if ys > " in each]
    assert any("append" in place.text for place in undecided_places([(lbfgs, read)], {}))
