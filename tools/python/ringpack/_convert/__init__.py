# SPDX-License-Identifier: Apache-2.0
"""The worker of `ringpack convert`: files and texts as documents of token ids. It is a program of
its own (worker.py has the protocol), and none of it is for users to import."""
