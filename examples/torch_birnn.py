"""A bidirectional RNN in PyTorch, the model that SpeCon was shown with: it reads pictures row by row, both ways.

    python examples/torch_birnn.py --steps 300                               # alone
    sterna submit --name birnn -- python examples/torch_birnn.py --steps 300

Pictures are made up, so that nothing has to be fetched. Three lines are for Sterna, marked (1) to (3); without it they
do nothing. A job that is stopped or moved goes on from its checkpoint, optimizer included.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

try:
    import torch
    from torch import nn
except ImportError:
    print("This example needs PyTorch: run pip install torch, and start it again.", file=sys.stderr)
    raise SystemExit(2) from None

from sterna import agent

SIDE, CLASSES = 28, 10


class BidirectionalRNN(nn.Module):
    """Both readings of a picture, and from their ends what it shows."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.reader = nn.LSTM(SIDE, hidden, batch_first=True, bidirectional=True)
        self.judge = nn.Linear(2 * hidden, CLASSES)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        _, (ends, _) = self.reader(rows)
        return self.judge(torch.cat([ends[0], ends[1]], dim=1))


def batch(shapes: torch.Tensor, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the batch of a step; it depends on the number of the step alone, so that training can resume."""
    draw = torch.Generator().manual_seed(step)
    labels = torch.randint(CLASSES, (size,), generator=draw)
    return shapes[labels] + torch.randn(size, SIDE, SIDE, generator=draw), labels


def save(path: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """All or nothing."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a bidirectional RNN on made-up pictures.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.01)
    asked = parser.parse_args()
    torch.manual_seed(0)
    shapes = torch.randn(CLASSES, SIDE, SIDE)
    model = BidirectionalRNN(asked.hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=asked.rate, momentum=0.9)
    path, step = agent.checkpoint_dir() / "birnn.pt", 0  # (1)
    if path.exists():
        found = torch.load(path)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        step = found["step"]
        print(f"resumed at step {step}")
    agent.on_stop(lambda: save(path, step, model, optimizer))  # (2)
    while step < asked.steps:
        rows, labels = batch(shapes, step, asked.batch)
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        agent.report(step, asked.steps, loss=loss.item())  # (3)
        if step % 50 == 0 or step == asked.steps:
            print(f"step={step}/{asked.steps} loss={loss.item():.4f}")
    save(path, step, model, optimizer)


if __name__ == "__main__":
    main()
