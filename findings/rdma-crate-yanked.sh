#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# rdma 0.3.0 and async-rdma 0.5.0 of crates.io, cargo 1.95, 28 November 2026.
#
# No new project can depend on either: by hex-simd 0.5 both ask for simd-abstraction 0.5, of which every version has been yanked. A project
# with an old Cargo.lock goes on building, so its author does not see that.
#
#   rdma 0.3.0: failed to select a version for the requirement `simd-abstraction = "^0.5.0"`
#   async-rdma 0.5.0: failed to select a version for the requirement `simd-abstraction = "^0.5.0"`
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
rc=0
for name in rdma:0.3.0 async-rdma:0.5.0; do
	mkdir -p "$name/src"
	: >"$name/src/lib.rs"
	printf '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n' "${name%:*}" "${name#*:}" >"$name/Cargo.toml"
	said=$(cd "$name" && cargo generate-lockfile 2>&1) && { echo "${name/:/ }: resolved"; rc=1; }
	found=$(grep -o 'failed to select a version for the requirement `simd-abstraction[^`]*`' <<<"$said") || rc=1
	echo "${name/:/ }: $found"
done
exit $rc
