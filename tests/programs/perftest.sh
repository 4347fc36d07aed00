#!/bin/bash
# perftest.sh - Debian's perftest and ibv_*_pingpong, unmodified, two processes on loopback through the drop-in: every program with every option of the table
# below that the stock program accepts. One line a case, then 'N passed, N failed, N skipped'.
#
#   perftest.sh [--lib SO | --no-lib] [--dev DEVICE] [--gid N] [--only REGEX] [--list] [--unprivileged] [--mixed] [-v]
#
# --no-lib: a device of this machine's (kernel rxe in the guest, say) instead of the software device. --unprivileged, as root: drop to nobody without groups
# and capabilities. --mixed: one side of each case sends by UDP alone, the server and the client in turn. Runs in a network namespace of its own, so that nothing else's port 4791 or TCP ports are in its way. Never judges a speed.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
lib=$root/build/libropeway-verbs.so dev=rpw_lo gid=1 only= list= unprivileged= verbose= inside= mixed= limit_s=${PERFTEST_LIMIT_S:-60} address=127.0.0.1
args=("$@")
while [ $# -gt 0 ]; do
	case $1 in
	--lib) lib=$(realpath "$2"); shift ;;
	--no-lib) lib= ;;
	--dev) dev=$2; shift ;;
	--gid) gid=$2; shift ;;
	--only) only=$2; shift ;;
	--list) list=1 ;;
	--unprivileged) unprivileged=1 ;;
	--inside) inside=1 ;;
	--mixed) mixed=1 ;;
	-v) verbose=1 ;;
	*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
	esac
	shift
done

# The programs and the options each accepts. No events on WRITE, no inline on READ and atomics, several QPs and both directions only where bandwidth is
# measured, UC for SEND and WRITE, UD for SEND, no sizes for atomics; -D runs for a second, without a count.
cases() {
	local op kind n
	for kind in bw lat; do
		n="-n 200"
		for op in send write read atomic; do
			say_case ib_${op}_$kind "$n"
			[ $op = atomic ] || say_case ib_${op}_$kind "-a -n 20"
			[ $op = write ] || say_case ib_${op}_$kind "-e $n"
			[ $kind = lat ] || say_case ib_${op}_$kind "-b $n"
			[ $kind = lat ] || say_case ib_${op}_$kind "-q 8 -n 100"
			case $op in send | write) say_case ib_${op}_$kind "-I 64 -s 64 $n" ;; esac
			say_case ib_${op}_$kind "-D 1"
			case $op in send | write) say_case ib_${op}_$kind "-c UC $n" ;; esac
			case $op in send) say_case ib_${op}_$kind "-c UD -s 1024 $n" ;; esac
		done
	done
	# Options together, as people combine them.
	say_case ib_send_bw "-b -e -q 8 -n 100"
	say_case ib_send_bw "-c UD -b -s 1024 -n 200"
	say_case ib_send_bw "-c UC -b -q 8 -n 100"
	say_case ib_send_bw "-c UD -a -n 20"
	say_case ib_write_bw "-c UC -a -n 20"
	say_case ib_write_bw "-a -b -q 8 -n 20"
	say_case ib_read_bw "-a -b -n 20"
	say_case ib_read_bw "-b -e -q 8 -n 100"
	say_case ib_send_lat "-c UD -e -s 1024 -n 200"
	for op in rc uc ud srq; do
		say_case ibv_${op}_pingpong ""
		say_case ibv_${op}_pingpong "-c"
		say_case ibv_${op}_pingpong "-e"
		say_case ibv_${op}_pingpong "-c -e"
	done
}

say_case() {
	[ -z "$only" ] || [[ "$1 $2" =~ $only ]] || return 0
	printf '%s|%s\n' "$1" "$2"
}

if [ -n "$list" ]; then
	cases | tr '|' ' '
	exit 0
fi
if [ -n "$lib" ] && [ ! -r "$lib" ]; then
	echo "perftest.sh: $lib is not there: run script/setup"
	exit 1
fi

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
case $lib in *[\ :]*) # at which the loader splits LD_PRELOAD
	ln -s "$(dirname "$lib")" "$scratch/lib"
	lib=$scratch/lib/${lib##*/}
	;;
esac
if [ -z "$inside" ]; then
	flags=-n
	[ "$(id -u)" = 0 ] || flags=-Urn
	if [ -n "$unprivileged" ] && [ "$(id -u)" = 0 ]; then
		# nobody need not be able to read the build folder, nor this script where it is.
		chmod 755 "$scratch"
		install -m 755 "$0" "$scratch/perftest.sh"
		[ -z "$lib" ] || { install -m 755 "$lib" "$scratch/libropeway-verbs.so" && args+=(--lib "$scratch/libropeway-verbs.so"); }
		unshare -n sh -c 'ip link set lo up; exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"' \
			sh env HOME=/tmp TMPDIR=/tmp "$scratch/perftest.sh" "${args[@]}" --inside
	elif [ -z "$lib" ]; then
		"$0" "${args[@]}" --inside
	else
		unshare $flags sh -c 'ip link set lo up; exec "$@"' sh "$0" "${args[@]}" --inside
	fi
	exit $?
fi

listening() {
	local hex
	hex=$(printf '%04X' "$1")
	for _ in $(seq 200); do
		grep -qi ":$hex 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
		kill -0 "$2" 2>/dev/null || return 1
		sleep 0.02
	done
	return 1
}

run_side() { # 0 the server, 1 the client, and the port; then the program
	local wire=${ROPEWAY_WIRE-}
	[ -z "$mixed" ] || { wire=auto; [ $((($1 + $2) % 2)) = 1 ] || wire=udp; }
	shift 2
	ROPEWAY_WIRE=$wire run_one "$@"
}

run_one() { # the program with LD_PRELOAD, and only it: a shell or timeout would load the drop-in for nothing
	timeout -k 2 "$limit_s" env ${lib:+LD_PRELOAD="$lib${ROPEWAY_CHECK:+:${lib%/*}/libropeway-check.so.0}"} "$@"
}

# One case: 0 passed, 1 failed; what both sides said is left in $scratch.
run_case() {
	local program=$1 options=$2 port=$3 common server client_rc server_rc
	case $program in
	ib_*) common="-d $dev -x $gid -p $port -F $options" ;;
	*) common="-d $dev -g $gid -p $port $options -n 500" ;;
	esac
	[ $program != ibv_ud_pingpong ] || common="$common -s 1024"
	# shellcheck disable=SC2086 # options are words
	run_side 0 "$port" "$program" $common >"$scratch/server" 2>&1 </dev/null &
	server=$!
	if ! listening "$port" $server; then
		kill $server 2>/dev/null
		wait $server
		echo "(never listened)" >>"$scratch/server"
		: >"$scratch/client"
		return 1
	fi
	# shellcheck disable=SC2086
	run_side 1 "$port" "$program" $common $address >"$scratch/client" 2>&1 </dev/null
	client_rc=$?
	[ $client_rc = 0 ] || { sleep 0.5; kill $server 2>/dev/null; }
	wait $server
	server_rc=$?
	echo "(exit status $server_rc)" >>"$scratch/server"
	echo "(exit status $client_rc)" >>"$scratch/client"
	[ $client_rc = 0 ] && [ $server_rc = 0 ] && ! grep -qiE 'invalid data|unexpected|ropeway: error' "$scratch/client" "$scratch/server"
}

command -v ib_send_bw >/dev/null || { echo "perftest.sh: no perftest here (package perftest): SKIPPED"; echo "0 passed, 0 failed, $(cases | wc -l) skipped"; exit 77; }
passed=0 failed=0 port=$((19000 + RANDOM % 1000))
while IFS='|' read -r program options; do
	port=$((port + 1))
	began=$(date +%s%N)
	tries=1 again=''
	if run_case "$program" "$options" $port; then
		verdict=pass
	else
		verdict=FAIL
	fi
	# UC repeats nothing (IB 9.8): where a message is lost, perftest waits for it until it is killed. So who ran out of time over UC is run again, twice at most, and it is said.
	while [ $verdict = FAIL ] && [[ " $options " == *' -c UC '* ]] && [ $tries -lt 3 ] && grep -q 'exit status 124' "$scratch/client" "$scratch/server"; do
		tries=$((tries + 1)) port=$((port + 1)) again=", try $tries: a UC message was lost"
		run_case "$program" "$options" $port && verdict=pass
	done
	if [ $verdict = pass ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
	took=$((($(date +%s%N) - began) / 1000000))
	printf '%s %-18s %-24s (%d.%d s%s)\n' $verdict "$program" "$options" $((took / 1000)) $((took % 1000 / 100)) "$again"
	if [ $verdict = FAIL ] || [ -n "$verbose" ]; then
		sed 's/^/    server: /' "$scratch/server" | tail -20
		sed 's/^/    client: /' "$scratch/client" | tail -20
	fi
done < <(cases)
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
