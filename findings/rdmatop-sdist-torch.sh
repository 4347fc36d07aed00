#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# rdmatop 0.1.33 of PyPI (a source package only), 28 November 2026.
#
# rdmatop is a monitor for a terminal, written in Rust. Its package on PyPI cannot even be downloaded by pip without torch:
# setup.py imports it for a part that PyTorch's profiler loads, so `pip install rdmatop` brings 8 GB of torch and CUDA into
# its build. `cargo install rdmatop` builds the same version of the monitor without. Seen:
#
#   ModuleNotFoundError: No module named 'torch'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install setuptools==84.2.1 setuptools-rust wheel
if venv/bin/pip download --no-deps --no-build-isolation --no-binary rdmatop rdmatop==0.1.33 >log 2>&1; then
	echo "downloaded"
	exit 1
fi
said=$(grep -o "ModuleNotFoundError: .*" log | head -1)
echo "$said"
[ "$said" = "ModuleNotFoundError: No module named 'torch'" ]
