"""Parameter-server training in TensorFlow: one script for chief, workers and servers, whose role is in TF_CONFIG.

    sterna create -f examples/manifests/tfjob.yaml

Sterna gives every replica its TF_CONFIG with addresses on loopback, as the operator does on Kubernetes. The chief leads
and reports; workers and servers wait for it. Alone, without TF_CONFIG, it trains in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
try:
    import tensorflow as tf
except ImportError:
    print("This example needs TensorFlow: run pip install tensorflow-cpu, and start it again.", file=sys.stderr)
    raise SystemExit(2) from None

from sterna import agent

FEATURES, CLASSES = 32, 5
LEADER = "chief"


def serve(resolver: Any, threads: int) -> None:
    """Be a worker or a parameter server until the chief is gone."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    place = {"job_name": resolver.task_type, "task_index": resolver.task_id, "protocol": "grpc"}
    tf.distribute.Server(resolver.cluster_spec(), config=config, **place).join()


def strategy_for(resolver: Any | None) -> Any:
    return tf.distribute.get_strategy() if resolver is None else tf.distribute.ParameterServerStrategy(resolver)


def train(strategy: Any, steps: int, rate: float, is_distributed: bool) -> None:
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, CLASSES]))
        done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=weights, done=done)
    keeper = tf.train.CheckpointManager(checkpoint, str(agent.checkpoint_dir()), max_to_keep=1)
    keeper.restore_or_initialize()
    agent.on_stop(keeper.save)

    @tf.function
    def step(number: Any) -> Any:
        """One batch, drawn from its number, wherever it is computed."""
        centres = tf.random.stateless_normal([CLASSES, FEATURES], seed=[0, 0])
        labels = tf.random.stateless_uniform([64], [1, number], maxval=CLASSES, dtype=tf.int32)
        rows = tf.gather(centres, labels) + 2 * tf.random.stateless_normal([64, FEATURES], [2, number])
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, rows @ weights)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(rate * tape.gradient(loss, weights))
        done.assign_add(1)
        return loss

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy) if is_distributed else None
    loss: Any = float("nan")
    for number in range(int(done.numpy()), steps):
        wish = tf.constant(number)
        loss = coordinator.schedule(step, args=(wish,)).fetch() if coordinator else step(wish).numpy()
        agent.report(number + 1, steps, loss=float(loss))
    print(f"step={steps}/{steps} loss={float(loss):.4f}")
    keeper.save()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with parameter servers.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.1)
    asked = parser.parse_args()
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    task = config.get("task", {}).get("type", "")
    # On a node of one core TensorFlow has one thread and deadlocks while it waits for its peers.
    threads = 2 + len(config.get("cluster", {}).get("worker", ()))
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver() if task else None
    if task and task != LEADER:
        serve(resolver, threads)
    else:
        train(strategy_for(resolver), asked.steps, asked.rate, bool(task))


if __name__ == "__main__":
    main()
