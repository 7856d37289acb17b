# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Trainer that continues with the row after its newest checkpoint.

    torchrun --nproc-per-node 2 hf_trainer.py --corpus licences --checkpoints trainer

Packed rows need no collator and no attention mask: a batch has all arguments that the model needs
to keep documents apart. The position is a field of trainer_state.json in each checkpoint.
"""

import argparse

import ringpack
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checkpoints", required=True, help="folder")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--accumulation", type=int, default=1, help="batches of a step")
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
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.checkpoints,
            max_steps=args.steps,
            save_steps=args.save_every,
            gradient_accumulation_steps=args.accumulation,
            logging_steps=1,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            use_cpu=not torch.cuda.is_available(),
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
            report_to="none",
        ),
    )
    ringpack.hf.attach(trainer, loader)
    newest = ringpack.hf.last_checkpoint(args.checkpoints)
    with loader:
        trainer.train(resume_from_checkpoint=newest)
        trainer.accelerator.wait_for_everyone()  # the engine ends with the first rank of the node


if __name__ == "__main__":
    main()
