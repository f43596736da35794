"""Data-parallel training in PyTorch that grows and shrinks under torchrun, step by step as if nothing had happened.

    torchrun --nproc_per_node 2 examples/torchrun_elastic.py --steps 200     # alone
    sterna create -f examples/manifests/torchrun-elastic.yaml

The batch of a step is the same for any number of workers: each takes every n-th row of it. torchrun restarts workers
when their number changes; they agree to stop, the first saves, and all go on from that step.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
    from torch import nn
except ImportError:
    print("This example needs PyTorch: run pip install torch, and start it with torchrun.", file=sys.stderr)
    raise SystemExit(2) from None

from sterna import agent

FEATURES, CLASSES, BATCH = 64, 10, 96


def batch(centres: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    labels = torch.randint(CLASSES, (BATCH,), generator=draw)
    return centres[labels] + 2 * torch.randn(BATCH, FEATURES, generator=draw), labels


def save(path: Path, step: int, model: nn.Module) -> None:
    """All or nothing."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save({"step": step, "model": model.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def stops_somewhere() -> bool:
    """Return True if any worker was asked to stop: all must leave between the same two steps."""
    asked = torch.tensor([float(agent.should_stop())])
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    return bool(asked.item())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with as many workers as there are.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints, for peers that vanish")
    asked = parser.parse_args()
    if "RANK" not in os.environ:
        print("Start this example with torchrun, which tells it who its peers are.", file=sys.stderr)
        raise SystemExit(2)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    centres = torch.randn(CLASSES, FEATURES)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    path, step = agent.checkpoint_dir() / "elastic.pt", 0
    if path.exists():
        found = torch.load(path)
        model.load_state_dict(found["model"])
        step = found["step"]
    print(f"rank {rank} of {size} begins at step {step}")
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=asked.rate)
    while step < asked.steps and not stops_somewhere():
        rows, labels = batch(centres, step)
        loss = nn.functional.cross_entropy(parallel(rows[rank::size]), labels[rank::size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            agent.report(step, asked.steps, loss=loss.item(), workers=size)
            if step % asked.save_every == 0:
                save(path, step, model)
                agent.saved(step)
    if rank == 0:
        save(path, step, model)
        agent.saved(step)
        print(f"step={step}/{asked.steps}")
    dist.barrier()
    dist.destroy_process_group()
    raise SystemExit(0 if step >= asked.steps else agent.EXIT_CODE)


if __name__ == "__main__":
    main()
