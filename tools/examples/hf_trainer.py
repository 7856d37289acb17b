# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Trainer that goes on with the row after its newest checkpoint.

    torchrun --nproc-per-node 2 hf_trainer.py --corpus licences --checkpoints trainer

Packed rows need no collator and no attention mask: `transformers` keeps documents apart by their
position_ids, which begin anew at 0 in each.
"""

import argparse
import os

import ringpack
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

NAMES = ("input_ids", "labels", "position_ids")


class PackedTrainer(Trainer):
    """Trainer, but batches come from a ringpack.Loader as they are."""

    def __init__(self, loader, **options):
        super().__init__(**options)
        self.loader = loader
        self.add_callback(SaveLoader(loader))

    def get_train_dataloader(self):
        """Batches know their rank already: nothing here shards them again."""
        return ({name: batch[name] for name in NAMES} for batch in self.loader)


class SaveLoader(TrainerCallback):
    """The position goes into each checkpoint of the Trainer; it is the same on all ranks."""

    def __init__(self, loader):
        self.loader = loader

    def on_save(self, args, state, control, **_):
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if state.is_world_process_zero:
            torch.save(self.loader.state_dict(), os.path.join(folder, "loader.pt"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checkpoints", required=True, help="folder")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=257,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=256,
        )
    )
    loader = ringpack.Loader(
        corpus=args.corpus,
        seq_len=256,
        batch_size=4,
        seed=1,
        num_epochs="endless",
        profile="hf",  # labels are aligned with their own tokens: the model shifts them
        return_type="torch",
    )
    trainer = PackedTrainer(
        loader,
        model=model,
        args=TrainingArguments(
            output_dir=args.checkpoints,
            max_steps=args.steps,
            save_steps=args.save_every,
            logging_steps=1,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            use_cpu=not torch.cuda.is_available(),
            ignore_data_skip=True,  # the loader stands at the right row: nothing is to be skipped
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
            report_to="none",
        ),
    )
    newest = get_last_checkpoint(args.checkpoints) if os.path.isdir(args.checkpoints) else None
    if newest:
        loader.load_state_dict(torch.load(os.path.join(newest, "loader.pt")))
    with loader:
        if trainer.args.world_size > 1:
            loader.check_ranks()
        trainer.train(resume_from_checkpoint=newest)
        trainer.accelerator.wait_for_everyone()  # the engine ends with the first rank of the node


if __name__ == "__main__":
    main()
