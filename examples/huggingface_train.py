"""A Hugging Face Trainer with a small transformer with random weights: nothing is downloaded.

    python examples/huggingface_train.py --steps 60                          # alone
    sterna submit --name transformer -- python examples/huggingface_train.py --steps 60

The callback is all that Sterna needs: it reports, and when the job is asked to stop it lets the Trainer save a
checkpoint of its own, from which the next attempt goes on. Versions of transformers that speak Kubeflow Trainer's
status protocol report even without it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

try:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint
except ImportError:
    print(
        "This example needs Hugging Face transformers: run pip install 'transformers[torch]', and start it again.",
        file=sys.stderr,
    )
    raise SystemExit(2) from None

from sterna import agent

WORDS, LENGTH, CLASSES = 200, 16, 4


class Sentences(torch.utils.data.Dataset):
    """Made-up sentences whose class is in one of their words."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> dict[str, Any]:
        draw = torch.Generator().manual_seed(index)
        words = torch.randint(CLASSES, WORDS, (LENGTH,), generator=draw)
        label = int(torch.randint(CLASSES, (1,), generator=draw))
        words[index % LENGTH] = label
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": label}


class Sterna(TrainerCallback):
    """Report the progress of the Trainer to Sterna."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        loss = next((each["loss"] for each in reversed(state.log_history) if "loss" in each), None)
        agent.report(state.global_step, state.max_steps, **({} if loss is None else {"loss": loss}))
        if agent.should_stop():
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        agent.saved(state.global_step)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small transformer with the Hugging Face Trainer.")
    parser.add_argument("--steps", type=int, default=60)
    asked = parser.parse_args()
    folder = str(agent.checkpoint_dir())
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=CLASSES, **sizes))
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=asked.steps,
        per_device_train_batch_size=16,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences(), callbacks=[Sterna()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    print(f"step={trainer.state.global_step}/{asked.steps}")
    if trainer.state.global_step < asked.steps:
        raise SystemExit(agent.EXIT_CODE)


if __name__ == "__main__":
    main()
