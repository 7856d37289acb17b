#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A C trainer on hosts that share this folder: `mpirun.sh host1:4,host2:4 config.yaml`.
set -euo pipefail
[ $# = 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }

ranks=$(tr , '\n' <<<"$1" | awk -F: '{ n += $2 ? $2 : 1 } END { print n }')
rows=$((${STEP_ROWS:-96} / ranks)) # a step has as many rows whatever the number of ranks
flags=$(pkg-config --cflags --libs ringpack)
# shellcheck disable=SC2086 # flags are words
mpicc -O2 "$(dirname "$0")/../mpi_trainer.c" $flags -lm -o mpi_trainer
exec mpirun --host "$1" -np "$ranks" -x PATH ${LD_LIBRARY_PATH:+-x LD_LIBRARY_PATH} \
    ./mpi_trainer "$2" "${STATE:-state}" "${STEPS:-100}" "$rows"
