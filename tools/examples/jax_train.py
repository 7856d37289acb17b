# SPDX-License-Identifier: Apache-2.0
"""A small language model in JAX on packed documents, which resumes exactly.

python jax_train.py --corpus licences --checkpoint jax.pkl
"""

import argparse
import os
import pickle

import jax
import jax.numpy as jnp
import numpy
import ringpack

VOCABULARY, LENGTH, WIDTH = 257, 256, 64


def new_parameters(key):
    shapes = {
        "token": (VOCABULARY, WIDTH),
        "position": (LENGTH, WIDTH),
        "query": (WIDTH, WIDTH),
        "key": (WIDTH, WIDTH),
        "value": (WIDTH, WIDTH),
        "head": (WIDTH, VOCABULARY),
    }
    keys = jax.random.split(key, len(shapes))
    return {name: 0.1 * jax.random.normal(k, shapes[name]) for name, k in zip(shapes, keys)}


def loss_of(parameters, batch):
    """One attention layer. A token sees those before it that have its segment id."""
    x = parameters["token"][batch["input_ids"]] + parameters["position"][batch["position_ids"]]
    q, k, v = (x @ parameters[name] for name in ("query", "key", "value"))
    segment = batch["segment_ids"]
    seen = (segment[:, :, None] == segment[:, None, :]) & jnp.tri(LENGTH, dtype=bool)
    scores = jnp.where(seen, q @ k.transpose(0, 2, 1) / WIDTH**0.5, -jnp.inf)
    logits = (x + jax.nn.softmax(scores) @ v) @ parameters["head"]
    label = jnp.maximum(batch["labels"], 0)  # -100 without a label, and loss_mask is 0
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, :, None], axis=2)[:, :, 0]
    labels = jnp.maximum(batch["loss_mask"].sum(), 1)  # a batch may have none: 0 / 0 is NaN
    return -(chosen * batch["loss_mask"]).sum() / labels


@jax.jit
def train_step(parameters, momentum, batch):
    loss, gradient = jax.value_and_grad(loss_of)(parameters, batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda p, m: p - 0.3 * m, parameters, momentum), momentum, loss


def save(path, state):
    """Whole or not at all: os.replace is one step."""
    with open(path + ".new", "wb") as file:
        pickle.dump(jax.tree.map(numpy.asarray, state), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checkpoint", required=True, help="file")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    args = parser.parse_args()

    loader = ringpack.Loader(
        corpus=args.corpus,
        seq_len=LENGTH,
        batch_size=4,
        seed=1,
        num_epochs="endless",
        sections=["labels", "position_ids", "segment_ids", "loss_mask"],  # i32 and f32
    )
    parameters = new_parameters(jax.random.key(1))
    momentum, step = jax.tree.map(jnp.zeros_like, parameters), 0
    if os.path.exists(args.checkpoint):
        with open(args.checkpoint, "rb") as file:
            parameters, momentum, step, state = pickle.load(file)
        loader.load_state_dict(state)
    names = ("input_ids", "labels", "position_ids", "segment_ids", "loss_mask")
    with loader:
        while step < args.steps:
            batch = next(loader)
            arrays = {name: jnp.array(batch[name]) for name in names}  # one copy, to the device
            parameters, momentum, loss = train_step(parameters, momentum, arrays)
            step += 1
            print(f"step {step} row {batch.next_row} loss {loss:.6f}", float(loss).hex())
            if step % args.save_every == 0:
                save(args.checkpoint, (parameters, momentum, step, loader.state_dict()))


if __name__ == "__main__":
    main()
