#!/bin/sh
# corpus.sh SECONDS [TARGET]... - a corpus for each target (default: all), made anew from its named seeds in tests/fuzz/corpus: fuzzes for SECONDS, then keeps the
# smallest set that reaches as much. It lies in build-fuzz/corpus/TARGET, which git ignores and from which run.sh starts as well. With 0 seconds: what the seeds reach.
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${1:?usage: corpus.sh SECONDS [TARGET]...}
shift
[ $# -gt 0 ] || { # shellcheck disable=SC2086
	set -- $targets
}
build_targets "$root/build-fuzz" "$@"

# What the inputs of a folder reach: edges (cov) and how often, in classes (ft).
reach() {
	# shellcheck disable=SC2086
	"$fuzz" -runs=0 $limits "$1" 2>&1 | sed -n 's/.*INITED cov: \([0-9]*\) ft: \([0-9]*\) corp.*/cov: \1 ft: \2/p'
}
for target; do
	fuzz=$build/tests/fuzz/${target}_fuzz seeds=$here/corpus/$target made=$build/corpus/$target
	mkdir -p "$made"
	if [ "$seconds" -gt 0 ]; then
		work=$(mktemp -d "$build/corpus/$target.XXXXXX")
		mkdir "$work/new" "$work/least" "$work/found"
		# shellcheck disable=SC2086
		"$fuzz" -max_total_time="$seconds" $limits -artifact_prefix="$work/found/" "$work/new" "$made" "$seeds" >"$work/log" 2>&1 &&
			"$fuzz" -merge=1 -set_cover_merge=1 -max_len=2048 "$work/least" "$seeds" "$made" "$work/new" >>"$work/log" 2>&1 || {
			tail -n 40 "$work/log"
			echo "$target: see $work" >&2
			exit 1
		}
		rm -rf "$made"
		mv "$work/least" "$made"
		rm -rf "$work"
	fi
	echo "$target: $(find "$seeds" -type f | wc -l) seeds, $(reach "$seeds"); made: $(find "$made" -type f | wc -l), $(reach "$made")"
done
