# lib.sh - what the scripts here share: where the tree is, how they talk, which Debian packages which job needs. Sourced, never run.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ropeway
NPROC=$(nproc 2>/dev/null || echo 2)

# To build, and for the demo. gcc starts make to compile in parallel when it links (-flto=auto), and without it says so in four lines.
PACKAGES_BUILD="meson ninja-build gcc make libc6-dev pkg-config libibverbs-dev libisal-dev zlib1g-dev libjansson-dev libcmocka-dev ibverbs-utils librdmacm-dev libgnutls28-dev libxxhash-dev libdw-dev"
PACKAGES_PYTHON="python3-dev python3-venv" # for pip, which builds in a venv
# To run script/test and script/bench. chromium shows the page of `ropeway explain`; libclang-rt-dev holds libFuzzer and the sanitizers of clang; mandoc looks at the man pages.
PACKAGES_TEST="g++ clang clang-format clang-tidy libclang-rt-dev perftest rdma-core rdmacm-utils python3-pyverbs
	ucx-utils libfabric-bin openmpi-bin libopenmpi-dev chromium tshark python3-scapy qemu-system-x86 busybox-static iproute2 iperf3 python3-dbg python3-dev python3-venv patchelf mandoc kmod cpio strace gdb procps util-linux nftables
	fio qperf infiniband-diags tgt libiscsi-bin libiscsi-dev librpma-dev bash-completion zsh fish python3-jsonschema"

# To cross-build and emulate (script/test --stage arm64).
PACKAGES_ARM64="mmdebstrap gcc-aarch64-linux-gnu qemu-user"

# To make the tree of script/test --stage debian; what its rows need is installed there.
PACKAGES_DEBIAN="debootstrap"

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { warn "$*"; exit 1; }

# The packages of the list that are not installed, on one line.
packages_missing() {
	local have
	have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^.i  *//p')
	# shellcheck disable=SC2086 # the list is words
	printf '%s\n' $1 | grep -vxF -f <(printf '%s\n' "$have") | tr '\n' ' ' | sed 's/ $//'
}

# How to become root without asking anything: "" as root, "sudo -n", or status 1. At a terminal sudo may ask for its password.
root_prefix() {
	if [ "$(id -u)" = 0 ]; then
		echo ""
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		echo "sudo -n"
	elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ]; then
		echo "sudo"
	else
		return 1
	fi
}

packages_install() {
	local missing prefix log
	if ! command -v dpkg-query >/dev/null; then
		warn "this is not a Debian system; what Debian calls these is needed: $(echo $1)"
		return 0
	fi
	missing=$(packages_missing "$1")
	[ -n "$missing" ] || return 0
	if ! prefix=$(root_prefix); then
		warn "missing packages, and neither root nor sudo is there to install them. Have someone run:"
		say "apt-get update && apt-get install -y --no-install-recommends $missing" >&2
		return 1
	fi
	say "installing from Debian:"
	say "$missing" | fold -s -w 90 | sed 's/^/  /'
	# noninteractive answers tshark's question (may ordinary users capture?) with its default, no; nothing here needs it.
	$prefix env DEBIAN_FRONTEND=noninteractive apt-get update -qq || return 1
	# shellcheck disable=SC2086
	log=$($prefix env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null 2>&1) || { say "$log" >&2; return 1; }
}

# A build folder, configured once: configure_dir DIR [meson options]. The options count only the first time.
configure_dir() {
	local dir=$1 log multiarch
	shift
	[ ! -f "$dir/build.ninja" ] || return 0
	say "building in $dir (once; on two idle cores half a minute, with the tests more than one)"
	# Asked of the compiler: meson asks dpkg-dev, and where that is missing chooses lib64, in which Debian's pkg-config and loader do not look.
	multiarch=$(cc -print-multiarch 2>/dev/null)
	log=$(meson setup "$dir" "$ROOT" ${multiarch:+"-Dlibdir=lib/$multiarch"} "$@" 2>&1) || { say "$log"; return 1; }
}

# The same, built. Silent where all is up to date.
build_dir() {
	configure_dir "$@" || return 1
	build_targets "$1"
}

# In a folder that is configured: build_targets DIR [TARGET...], by default everything. On a terminal ninja counts.
build_targets() {
	local dir=$1 log
	shift
	# What meson says where its files or options have changed is of no use to those who build.
	log=$(ninja -C "$dir" build.ninja 2>&1) || { say "$log"; return 1; }
	if [ -t 1 ]; then
		ninja -C "$dir" -n "$@" 2>/dev/null | grep -q '^ninja: no work to do\.$' || NINJA_STATUS='[%f of %t] ' ninja -C "$dir" -j "$NPROC" "$@"
		return
	fi
	ninja -C "$dir" --quiet -j "$NPROC" "$@" | sed '/^ninja: no work to do\.$/d'
	return "${PIPESTATUS[0]}"
}
