# lib.sh - what run.sh and corpus.sh share: the targets, their builds, the limits of an input. Sourced, never run.
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
targets="decode responder requester cm boot tcp shm verbs ncclnet msg rma files parse script capture handover gsi netlink"
limits="-max_len=2048 -len_control=20 -timeout=20 -rss_limit_mb=2048"

# build_targets BUILD_DIR TARGET...: the build folder is made if it is not there.
build_targets() {
	build=$1
	shift
	if [ ! -f "$build/build.ninja" ]; then
		CC=clang meson setup "$build" "$root" -Dfuzz=true --buildtype=debugoptimized -Db_lundef=false >&2
	fi
	# shellcheck disable=SC2046
	ninja -C "$build" $(printf 'tests/fuzz/%s_fuzz ' "$@") >&2
}
