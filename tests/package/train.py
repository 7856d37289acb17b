# SPDX-License-Identifier: Apache-2.0
"""A trainer without torch, for tests/package/run: train.py CORPUS STATE [BATCHES]

Its model is the number of times that each token followed each other one, as hashes of batches would
be too easy to get right. With BATCHES it kills itself after that number of them; the file STATE has
the model and the position of the batch before. Prints the first row that it got, and the model's
hash. With RP_FORGET it forgets the position, and keeps the model: a defect, which the test has to
find.
"""

import hashlib
import os
import signal
import sys

import numpy
import ringpack

corpus, state, batches = sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None
counts = numpy.zeros((257, 257), dtype=numpy.int64)
loader = ringpack.Loader(corpus=corpus, seq_len=512, batch_size=4, seed=1, num_epochs=3)
if os.path.exists(state):
    with numpy.load(state) as saved:
        counts = saved["counts"]
        if "RP_FORGET" not in os.environ:
            loader.load_state_dict({"ringpack_state": saved["loader"]})

with loader:
    first = loader.next_row
    for number, batch in enumerate(loader):
        if number == batches:
            os.kill(os.getpid(), signal.SIGKILL)
        ids = batch["input_ids"].astype(numpy.int64)
        numpy.add.at(counts, (ids[:, :-1].ravel(), ids[:, 1:].ravel()), 1)
        if number % 5 == 4:
            position = loader.state_dict()["ringpack_state"]
            with open(state + ".new", "wb") as file:
                numpy.savez(file, counts=counts, loader=position)
            os.replace(state + ".new", state)
print(first, hashlib.sha256(counts.tobytes()).hexdigest())
