#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libucx-cu12 1.22.0 of PyPI (x86-64 wheel), 28 November 2026.
#
# The UCX that RAPIDS, Dask and ucxx install has no module for InfiniBand and RoCE (libuct_ib): on a machine with
# NICs it takes TCP, and the list of transports is all that says so. The modules that are there:
#
#   cma cuda
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q download --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 --python-version 3.11 libucx-cu12==1.22.0
modules=$(python3 -m zipfile -l libucx_cu12-*.whl | sed -n 's/.*libuct_\([a-z]*\)[-.a-z0-9]*\.so.*/\1/p' | sort -u | xargs)
echo "$modules"
[ "$modules" = "cma cuda" ]
