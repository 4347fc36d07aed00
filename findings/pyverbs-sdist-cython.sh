#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# pyverbs 59.0 of PyPI (the newest there, a source package) with Cython 3.3.1 and 3.0.12, 28 November 2026.
#
# `pip install pyverbs` builds rdma-core for minutes and then ends with an error of Cython: pyproject.toml asks for 3.0.12
# or newer, pip takes the newest, and that finds a parenthesis too many in an f-string of mlx5dv_flow.pyx, which 3.0.12
# does not see. Seen:
#
#   3.0.12: translated
#   3.3.1: Unmatched ')'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q download --no-deps --no-binary pyverbs pyverbs==59.0 >/dev/null
tar xf pyverbs-59.0.tar.gz
grep '"cython' pyverbs-59.0/pyproject.toml
file=$(find pyverbs-59.0 -name mlx5dv_flow.pyx)
said=
for version in 3.0.12 3.3.1; do
	venv/bin/pip -q install "cython==$version" setuptools
	if venv/bin/cython -3 -o out.c "$file" >log 2>&1; then
		said="$said$version: translated"$'\n'
	else
		said="$said$version: $(sed -n "s/.*pyx:[0-9]*:[0-9]*: //p" log | head -1)"
	fi
done
echo "$said"
[ "$said" = "3.0.12: translated
3.3.1: Unmatched ')'" ]
