# SPDX-License-Identifier: Apache-2.0
"""The package's loggers, for modules that log seldom: `import ringpack` does not import logging."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger(name: str = "ringpack") -> "logging.Logger":
    import logging

    return logging.getLogger(name)
