#!/bin/sh
# run.sh SECONDS [BUILD_DIR] - fuzz for so long, the time split over the targets; exits with 1 when one finds something.
# Starts from tests/fuzz/corpus; new inputs stay in BUILD_DIR/fuzz-work (default: build-fuzz of this tree, made if it is not there).
set -eu
seconds=${1:?usage: run.sh SECONDS [BUILD_DIR]}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${2:-$root/build-fuzz}
targets="decode responder requester cm boot tcp shm verbs msg files parse"

if [ ! -f "$build/build.ninja" ]; then
	CC=clang meson setup "$build" "$root" -Dfuzz=true --buildtype=debugoptimized -Db_lundef=false >&2
fi
for t in $targets; do
	ninja -C "$build" "tests/fuzz/${t}_fuzz" >&2
done

each=$((seconds / $(echo "$targets" | wc -w)))
[ "$each" -ge 1 ] || each=1
failed=
for t in $targets; do
	work=$build/fuzz-work/$t
	mkdir -p "$work/new" "$work/found"
	echo "fuzz: $t, $each s"
	if ! "$build/tests/fuzz/${t}_fuzz" -max_total_time="$each" -max_len=2048 -len_control=20 -timeout=20 -rss_limit_mb=2048 \
		-artifact_prefix="$work/found/" "$work/new" "$here/corpus/$t" >"$work/log" 2>&1; then
		failed="$failed $t"
		tail -n 40 "$work/log"
		echo "fuzz: $t found something: the input is in $work/found, run it again with: $build/tests/fuzz/${t}_fuzz FILE"
	else
		tail -n 1 "$work/log"
	fi
done
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2; exit 1; }
echo "fuzz: nothing found"
