# SPDX-License-Identifier: Apache-2.0
"""The delivery of fake_client.c: its batches, and the content of a returned slot."""

import numpy

ROWS, LENGTH, SLOTS = 2, 8, 4
POISON = 0x5A5A5A5A


def tokens(k):
    """input_ids of batch k."""
    return (k * 1000 + numpy.arange(ROWS * LENGTH, dtype=numpy.int32)).reshape(ROWS, LENGTH)
