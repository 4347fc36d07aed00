#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# nixl-cu12 1.5.1 (PyPI, NIXL built for CUDA 12) names torch as a requirement without a version or an
# index. pip therefore chooses PyPI's newest torch (2.15.0 on 28 November 2026), which is built for
# CUDA 13: the environment of a CUDA 12 package gets CUDA 13's libraries, and 5.8 GB in all.
# NIXL's Python API needs none of it: torch is imported for type checks alone. Without it, the wheel,
# numpy and the CUDA 12 runtime (about 300 MB) make an agent.
#
# Seen: "would install: torch 2.15.0 and 11 packages of CUDA 13: nvidia-cudnn-cu13 ...", then
#       "agent made, torch imported: False"
# Ends with 0 if it is still so, else with 1. Needs Python 3.10 to 3.12 with venv, x86-64, PyPI.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --dry-run --only-binary :all: --report report.json nixl-cu12==1.5.1
env/bin/python3 - <<'P'
import json
chosen = {p["metadata"]["name"]: p["metadata"]["version"] for p in json.load(open("report.json"))["install"]}
cuda13 = [n for n, v in chosen.items() if n.endswith("cu13") or n.startswith("nvidia-") and v.startswith("13.")]
print("would install: torch", chosen.get("torch"), "and", len(cuda13), "packages of CUDA 13:", *cuda13)
raise SystemExit("torch" not in chosen or not cuda13)
P
env/bin/pip install -q --no-deps --only-binary :all: nixl-cu12==1.5.1 nvidia-cuda-runtime-cu12==12.9.79 numpy==2.4.6
env/bin/python3 - <<'P'
import os
import sys
from nixl_cu12._api import nixl_agent, nixl_agent_config
agent = nixl_agent("one", nixl_agent_config(True, True, 0, backends=["UCX"]))
print("agent made, torch imported:", "torch" in sys.modules, flush=True)
os._exit("torch" in sys.modules)
P
