#!/bin/sh
# run.sh SECONDS [BUILD_DIR] - fuzz for so long, the time split over the targets; exits with 1 when one finds something.
# Starts from the named seeds in tests/fuzz/corpus, and what corpus.sh made of them; new inputs stay in BUILD_DIR/fuzz-work (default: build-fuzz of this tree, made if it is not there).
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${1:?usage: run.sh SECONDS [BUILD_DIR]}
# shellcheck disable=SC2086
build_targets "${2:-$root/build-fuzz}" $targets

# As many at a time as there are cores: the time is shared, so it takes SECONDS divided by that.
each=$((seconds / $(echo "$targets" | wc -w)))
[ "$each" -ge 1 ] || each=1
fuzz_one() {
	work=$build/fuzz-work/$1
	mkdir -p "$work/new" "$work/found" "$build/corpus/$1"
	rm -f "$work/failed"
	# shellcheck disable=SC2086
	if "$build/tests/fuzz/${1}_fuzz" -max_total_time="$each" $limits \
		-artifact_prefix="$work/found/" "$work/new" "$build/corpus/$1" "$here/corpus/$1" >"$work/log" 2>&1; then
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
