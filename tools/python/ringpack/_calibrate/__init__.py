# SPDX-License-Identifier: Apache-2.0
"""`ringpack calibrate`: the cost of a document, measured. Nothing here imports the package: the
folder runs where only torch is."""
