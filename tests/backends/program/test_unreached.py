"""Which places of a stopped program may still take GPU memory, told by its source and the lines that ran.

In the programs, `# step` is where the optimizer steps. Lines that have not run are marked: `# late` may take memory and
are named, `# unseen` are not. `# sized` ran, and are named because what they take may change. All others ran.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from legroom.backends.program.unreached import places_not_reached

LATE = {
    "at the end of a block": """
        class Report:
            def __exit__(self, *error):
                self.table = net(test_set)  # late
        with Report():
            for step in range(1000):
                optimizer.step()  # step
        """,
    "by a timer": """
        def validate():
            return net(test_set)  # late
        threading.Timer(300, validate).start()
        for step in range(1000):
            optimizer.step()  # step
        """,
    "groups of a table": """
        for user, events in table.groupby("user"):  # sized
            optimizer.step()  # step
        """,
    "by a decorator": """
        @atexit.register
        def report():
            print(net(test_set))  # late
        @trainer.on(Events.COMPLETED)
        def test(engine):
            bank = torch.cat(parts)  # late
        @torch.no_grad()
        def never_called():
            return net(test_set)  # unseen
        for step in range(1000):
            optimizer.step()  # step
        """,
    "by a lambda that a library keeps": """
        weakref.finalize(run, lambda: net(test_set))  # sized
        for step in range(1000):
            optimizer.step()  # step
        """,
    "a size by a function of the step": """
        def side(step):
            return min(32 * 2 ** (step // 1000), 512)
        for step in range(10_000):
            n = side(step)
            x = torch.randn(8, n, n)  # sized
            optimizer.step()  # step
        """,
    "phases of a generator": """
        def phases():
            yield 64, 1000
            yield 4096, 1000
        for batch, steps in phases():
            for _ in range(steps):
                net(torch.randn(batch, 16))  # sized
                optimizer.step()  # step
        """,
    "sizes out of a list, one by one": """
        sizes = [50] * 29_999 + [30_000]
        random.shuffle(sizes)
        for nodes in sizes:
            x = torch.randn(nodes, 256)  # sized
            optimizer.step()  # step
        """,
    "lengths of records": """
        lengths = sorted(len(text) for text in texts)
        for length in lengths:
            x = torch.randn(length, 256)  # sized
            optimizer.step()  # step
        """,
    "a schedule that is put together": """
        sizes = [512] * 4 + [1 << 20]
        for step in range(10_000):
            net(batch(sizes[step // 2000]))  # sized
            optimizer.step()  # step
        """,
    "behind the loop": """
        for step in range(1000):
            loss = net(x).mean()
            optimizer.step()  # step
        result = net(test_set)  # late
        print(result.mean())  # late
        """,
    "a function behind the loop": """
        def evaluate(net):
            out = net(test_set)  # unseen
            return out.mean().item()  # unseen
        for step in range(1000):
            optimizer.step()  # step
        print(evaluate(net))  # late
        """,
    "at a step": """
        def train():
            for step in range(10_000):
                optimizer.step()  # step
                if step == 2000:
                    extra = torch.zeros(1 << 30, device="cuda")  # late
        train()
        """,
    "every so many steps, in a called function": """
        def after(self, step):
            if step % self.every == 0:
                self.validate()  # late
        def validate(self):
            self.net(self.held_out)  # unseen
        while True:
            optimizer.step()  # step
            after(self, count)
        """,
    "unfrozen": """
        for epoch in range(10):
            for batch in loader:
                optimizer.step()  # step
            if epoch == 5:  # unseen
                for parameter in body.parameters():  # unseen
                    parameter.requires_grad = True  # late
        """,
    "snapshots": """
        for epoch in range(10):
            for batch in loader:
                optimizer.step()  # step
            snapshots.append(copy.deepcopy(net))  # late
        """,
    "kept": """
        for epoch in range(10):
            for batch in loader:
                out = net(batch)
                optimizer.step()  # step
            outputs.append(out)  # late
        """,
    "a second model": """
        def fit(model):
            for step in range(1000):
                optimizer.step()  # step
        fit(first)
        fit(Second().cuda())  # late
        """,
    "a while loop that waits": """
        while step < 1000:
            step += 1
            if step < 500:
                continue
            optimizer.step()  # step
            if len(buffer) > 400:
                big.forward(buffer)  # late
        """,
    "a schedule of batches": """
        sizes = [32, 64, 128]
        for step in range(10_000):
            n = sizes[step // 1000]
            x = torch.randn(n, 8)  # sized
            optimizer.step()  # step
        """,
    "a longer sequence": """
        for step in range(10_000):
            length = 128 if step < 2000 else 1024
            x = data[:, :length]  # sized
            optimizer.step()  # step
        """,
    "a rare size": """
        def train(rows):
            x = torch.randn(rows, 8)  # sized
            optimizer.step()  # step
        for step in range(200_000):
            train(3_000_000 if rng.random() < 1 / 10_000 else 64)
        """,
    "a curriculum by epoch": """
        def batch(size):
            return torch.randn(size, 8)  # sized
        for epoch in range(10):
            for _ in range(100):
                x = batch(32 * (epoch + 1))
                optimizer.step()  # step
        """,
    "a schedule in a function": """
        def size_at(step):
            return 32 if step < 1000 else 64
        for step in range(10_000):
            x = torch.randn(size_at(step), 8)  # sized
            optimizer.step()  # step
        """,
    "a bound that grows": """
        for step in range(10_000):
            x = torch.randn(min(1 + step // 100, 64), 8)  # sized
            optimizer.step()  # step
        """,
    "a size assigned later": """
        n = 32
        for step in range(10_000):
            x = torch.randn(n, 8)  # sized
            optimizer.step()  # step
            if step == 3000:
                n = 512  # unseen
        """,
    "arithmetic of tensors": """
        for step in range(10):
            optimizer.step()  # step
        pairs = features @ features.T  # late
        """,
}
NOTHING = {
    "a plain loop": """
        for step in range(10_000):
            x = torch.randn(args.batch_size, 1024, device="cuda")
            loss = net(x).mean()
            loss.backward()
            optimizer.step()  # step
            if args.keep_outputs:
                outputs.append(net(x))  # unseen
        """,
    "logging, checkpoints and the end": """
        import time
        start, best, history = time.time(), 1e9, []
        for epoch in range(10):
            total = 0.0
            for step, batch in enumerate(loader):
                loss = net(batch).mean()
                optimizer.step()  # step
                total += loss.item()
                if step % 100 == 99:
                    print(f"{step} {total / step:.3f} {int(step / (time.time() - start))}")  # unseen
                    writer.add_scalar("loss", total / step, step)  # unseen
                    history.append(loss.item())  # unseen
            scheduler.step()  # unseen
            if total < best:  # unseen
                best = total  # unseen
                torch.save({"model": net.state_dict(), "epoch": epoch}, f"best-{epoch}.pt")  # unseen
            print("epoch", epoch, total / len(loader))  # unseen
        torch.save(net.state_dict(), "last.pt")  # unseen
        writer.close()  # unseen
        with open("history.json", "w") as file:  # unseen
            json.dump(history, file)  # unseen
        """,
    "schedules of rates": """
        for update in range(100):
            frac = 1.0 - update / 100
            optimizer.param_groups[0]["lr"] = frac * args.learning_rate
            lr = 1e-3 if update < 50 else 1e-4
            epsilon = max(1.0 - 0.01 * update, 0.05)
            for epoch in range(4):
                for start in range(0, 1024, 256):
                    part = b_inds[start : start + 256]
                    loss = epsilon * net(obs[part]).mean()
                    optimizer.step()  # step
        """,
    "an epoch that is handed on": """
        def train_epoch(net, epoch):
            for batch in loader:
                loss = net(batch).mean()
                optimizer.step()  # step
            print(f"epoch {epoch}: done")  # unseen
        def report(epoch, losses):
            logger.info("epoch %d: %.3f", epoch, sum(losses) / len(losses))  # unseen
        for epoch in range(10):
            train_epoch(net, epoch)
            report(epoch, losses)  # unseen
        """,
    "arguments decide": """
        def train(args, net, mask=None):
            for step in range(1000):
                if args.profile and step > 3:
                    loss = net(x).mean()
                if mask is not None:
                    x = x * mask  # unseen
                if cfg.model.kind == "large":
                    net.grow()  # unseen
                optimizer.step()  # step
        train(args, net)
        if args.test:  # unseen
            evaluate(net)  # unseen
        """,
    "what goes wrong": """
        for step in range(1000):
            try:
                optimizer.step()  # step
            except ValueError:
                net.cpu().rebuild()  # unseen
                raise  # unseen
            if torch.isnan(loss):
                raise FloatingPointError(describe(net(x)))  # unseen
        """,
    "target_kl and counters": """
        while step < args.total:
            step += 1
            index = step % 64
            buffer[index] = obs
            optimizer.step()  # step
            if approx_kl > args.target_kl:
                break  # unseen
        """,
}


def _named(folder: Path, source: str) -> tuple[list[int], list[int]]:
    script = folder / "program.py"
    script.write_text(textwrap.dedent(source).strip() + "\n")
    lines = script.read_text().splitlines()
    marked = {
        mark: [at for at, text in enumerate(lines, 1) if f"# {mark}" in text]
        for mark in ("step", "late", "sized", "unseen")
    }
    ran = set(range(1, len(lines) + 1)) - {*marked["late"], *marked["unseen"]}
    (step,) = marked["step"]
    stack = [(str(script), step, _function_of(lines, step))]
    while function := stack[-1][2]:
        call = lines[function - 1].split("def ")[1].split("(")[0] + "("
        line = next(at for at in sorted(ran) if call in lines[at - 1] and "def " not in lines[at - 1])
        stack.append((str(script), line, _function_of(lines, line)))
    found = places_not_reached([stack], {str(script): ran})
    return [place.line for place in found], sorted([*marked["late"], *marked["sized"]])


def _function_of(lines: list[str], line: int) -> int:
    depth = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    for at in range(line, 0, -1):
        text = lines[at - 1]
        indent = len(text) - len(text.lstrip())
        if indent < depth and text.lstrip().startswith("def "):
            return at
        depth = min(depth, indent)
    return 0  # the module


@pytest.mark.parametrize("name", LATE)
def test_places_that_may_take_more_are_named(tmp_path: Path, name: str) -> None:
    found, expected = _named(tmp_path, LATE[name])
    assert found == expected


@pytest.mark.parametrize("name", NOTHING)
def test_places_that_take_nothing_are_not(tmp_path: Path, name: str) -> None:
    found, expected = _named(tmp_path, NOTHING[name])
    assert found == expected == []
