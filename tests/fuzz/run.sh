#!/bin/sh
# run.sh SECONDS [BUILD_DIR] - fuzz for so long, the time split over the targets; exits with 1 when one finds something.
# Starts from tests/fuzz/corpus; new inputs stay in BUILD_DIR/fuzz-work (default: build-fuzz of this tree, made if it is not there).
set -eu
seconds=${1:?usage: run.sh SECONDS [BUILD_DIR]}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${2:-$root/build-fuzz}
targets="decode responder requester cm boot tcp shm verbs ncclnet msg files parse capture handover gsi"

if [ ! -f "$build/build.ninja" ]; then
	CC=clang meson setup "$build" "$root" -Dfuzz=true --buildtype=debugoptimized -Db_lundef=false >&2
fi
# shellcheck disable=SC2046
ninja -C "$build" $(printf 'tests/fuzz/%s_fuzz ' $targets) >&2

# As many at a time as there are cores: the time is shared, so it takes SECONDS divided by that.
each=$((seconds / $(echo "$targets" | wc -w)))
[ "$each" -ge 1 ] || each=1
fuzz_one() {
	work=$build/fuzz-work/$1
	mkdir -p "$work/new" "$work/found"
	rm -f "$work/failed"
	if "$build/tests/fuzz/${1}_fuzz" -max_total_time="$each" -max_len=2048 -len_control=20 -timeout=20 -rss_limit_mb=2048 \
		-artifact_prefix="$work/found/" "$work/new" "$here/corpus/$1" >"$work/log" 2>&1; then
		echo "fuzz: $1, $each s: $(tail -n 1 "$work/log")"
	else
		touch "$work/failed"
		tail -n 40 "$work/log"
		echo "fuzz: $1 found something: the input is in $work/found, run it again with: $build/tests/fuzz/${1}_fuzz FILE"
	fi
}
running=0
for t in $targets; do
	fuzz_one "$t" &
	running=$((running + 1))
	[ $((running % $(nproc))) -ne 0 ] || wait
done
wait
failed=
for t in $targets; do
	[ ! -e "$build/fuzz-work/$t/failed" ] || failed="$failed $t"
done
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2; exit 1; }
echo "fuzz: nothing found"
