#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The campaign of kills in its short form: 250 at random and at points, after its controls.
set -euo pipefail
exec "${RP_SOURCE_DIR:?}/tools/campaign" kills --kills 250
