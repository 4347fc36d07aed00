#!/bin/bash
# arm64.sh [--tree] [BUILD_DIR] - cross-built for arm64 against Debian's libraries, and what of the tests needs no kernel of that kind, under qemu-user. It emulates the instructions, and not how late another core sees a store: for that
# there is orders_test.py.
# A line for each test that failed, then 'N passed, N failed, N skipped'. Downloads about 60 MB (mmdebstrap) the first time. --tree: no more than Debian's tree, with Python, and cross.ini beside it.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tree_only=
[ "${1:-}" != --tree ] || { tree_only=yes; shift; }
dir=$(realpath -m "${1:-$root/build-arm64}")
sys=$dir/root
export CMOCKA_MESSAGE_OUTPUT=TAP LD_LIBRARY_PATH=

for tool in mmdebstrap aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v $tool >/dev/null || { echo "SKIPPED: no $tool here (packages mmdebstrap, gcc-aarch64-linux-gnu, qemu-user)"; echo "0 passed, 0 failed, 1 skipped"; exit 77; }
done
mkdir -p "$dir"
packages=libc6-dev,libgcc-12-dev,libibverbs-dev,librdmacm-dev,libisal-dev,zlib1g-dev,libjansson-dev,libcmocka-dev,libgnutls28-dev,libxxhash-dev,libdw-dev,libpython3-dev,python3
if [ "$(cat "$dir/has-root" 2>/dev/null)" != "$packages" ]; then
	rm -rf "$sys"
	mmdebstrap --quiet --variant=extract --architectures=arm64 --include=$packages bookworm "$sys" || exit 1
	echo "$packages" >"$dir/has-root"
fi
cat >"$dir/cross.ini" <<END
[binaries]
c = ['aarch64-linux-gnu-gcc', '--sysroot=$sys']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '$sys']
[properties]
sys_root = '$sys'
pkg_config_libdir = ['$sys/usr/lib/aarch64-linux-gnu/pkgconfig', '$sys/usr/share/pkgconfig']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
[ -z "$tree_only" ] || exit 0
[ -e "$dir/build/build.ninja" ] || meson setup "$dir/build" "$root" --cross-file "$dir/cross.ini" --buildtype=debugoptimized >"$dir/setup.log" || { tail "$dir/setup.log"; exit 1; }
ninja -C "$dir/build" >"$dir/ninja.log" || { grep -E 'error|FAILED' "$dir/ninja.log"; exit 1; }

passed=0 failed=0 skipped=0
# What an emulator cannot show: NAME|REASON
apart='base-guard|qemu-user ends a process whose thread blocks SIGSEGV
bench-measure|it executes programs of the build by itself
nccl check over tcp|it executes programs of the build by itself
io-pcapng|it executes itself
nccl plugin over tcp, helped|the child that it forks beside its helper threads ends by signal 11 under qemu-user, natively it does not
fuzz-corpus-files|no seeds without the other targets
script-test|it is of this machine
leaks|/proc/self/fd is the emulator'"'"'s
a_context_belongs_to_its_process|qemu-user says yes to MADV_WIPEONFORK, and wipes nothing'
reason() { printf '%s\n' "$apart" | awk -F'|' -v n="$1" '$1 == n { print $2 }'; }

# A name and whether it passed.
count() {
	local why
	if [ "$2" = ok ]; then
		passed=$((passed + 1))
	elif why=$(reason "${1##* / }"); [ -n "$why" ] || { why=$(reason "${1##* }"); [ -n "$why" ]; }; then
		skipped=$((skipped + 1))
		echo "SKIPPED $1: $why"
	else
		failed=$((failed + 1))
		echo "FAIL $1"
	fi
}

# The one that is linked with it looks for leaks by ptrace, which the emulator has not.
export LSAN_OPTIONS=detect_leaks=0
meson test -C "$dir/build" --no-rebuild --suite unit --suite sim -t 10 >"$dir/unit.log" 2>&1
while IFS='|' read -r name result; do
	count "$name" "$result"
done < <(python3 -c '
import json, sys
for line in open(sys.argv[1]):
    test = json.loads(line)
    print(test["name"].split(" / ")[-1] + "|" + ("ok" if test["result"] in ("OK", "SKIP") else "bad"))' "$dir/build/meson-logs/testlog.json")

# TAP: 27 cases on each transport, and the contract of the library.
tap() {
	local name=$1 line
	shift
	timeout 900 qemu-aarch64 -L "$sys" "$@" >"$dir/tap.log" 2>/dev/null
	while read -r line; do
		local is=bad title=${line%% #*}
		title=${title#*- }
		case $line in
		'ok '*) is=ok ;;
		'not ok '*) ;;
		*) continue ;;
		esac
		count "$name: $title" $is
	done <"$dir/tap.log"
	grep -q '^1\.\.' "$dir/tap.log" || { echo "FAIL $name did not come to its end"; failed=$((failed + 1)); }
}
tap shm "$dir/build/tests/tran/tran_conformance" shm
tap tcp "$dir/build/tests/tran/tran_conformance" tcp
tap pipe "$dir/build/tests/tran/tran_pipe_conformance" pipe
CONTRACT_TRANSPORTS=shm,tcp tap contract "$dir/build/tests/contract/contract"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
