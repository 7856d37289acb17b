#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same command on every node; the loader of each node's first rank starts its engine.
#
#     torchrun.sh NODES THIS_NODE FIRST_NODE RANKS_HERE
#
# Nodes may have different numbers of ranks. Another number of nodes, or of ranks, goes on from the
# same checkpoints with the same rows. When a rank dies torchrun starts all of them again, RESTARTS
# times at most; each time with a store of its own, or gloo finds the addresses of the dead.
set -euo pipefail
[ $# = 4 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
exec torchrun --nnodes "$1" --node-rank "$2" --nproc-per-node "$4" --max-restarts "${RESTARTS:-3}" \
    --master-addr "$3" --master-port "${MASTER_PORT:-29500}" "$(dirname "$0")/../gpt.py" \
    --corpus "${CORPUS:-licences}" --checkpoints "${CHECKPOINTS:-checkpoints}" \
    --steps "${STEPS:-100}"
