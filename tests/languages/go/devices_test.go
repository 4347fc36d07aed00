// SPDX-License-Identifier: BSD-3-Clause

// Package languages asks Go's packages for the RDMA devices of this machine. They make system calls themselves, past
// any preload, so `ropeway run --namespace` shows them the files of a device. DEVICE and INTERFACE name it; see ../run.py.
package languages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Mellanox/rdmamap"
	"github.com/prometheus/procfs/sysfs"
	"github.com/vishvananda/netlink"
)

var device, iface = os.Getenv("DEVICE"), os.Getenv("INTERFACE")

func port(t *testing.T) sysfs.InfiniBandPort {
	t.Helper()
	fs, err := sysfs.NewFS("/sys")
	if err != nil {
		t.Fatal(err)
	}
	class, err := fs.InfiniBandClass()
	if err != nil {
		t.Fatal(err)
	}
	port, there := class[device].Ports[1]
	if !there {
		t.Fatalf("port 1 of %s is not in %v", device, class)
	}
	return port
}

func TestProcfsReadsTheDevice(t *testing.T) {
	p := port(t)
	if p.State != "ACTIVE" || p.PhysState != "LinkUp" || p.LinkLayer != "Ethernet" || p.Rate == 0 {
		t.Fatalf("%+v", p)
	}
}

func listens(port int) bool {
	tables := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		tables += string(text)
	}
	return regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A`, port)).MatchString(tables)
}

// within repeats what is asked until it is so.
func within(limit time.Duration, isSo func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if isSo() {
			return true
		}
	}
	return false
}

// pingpong returns a program of rdma-core: a client of `peer`, or a server that listens by now.
func pingpong(t *testing.T, port int, peer ...string) *exec.Cmd {
	t.Helper()
	words := append([]string{"-d", device, "-g", "1", "-n", "1000", "-s", "4096", "-p", fmt.Sprint(port)}, peer...)
	c := exec.Command("ibv_rc_pingpong", words...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if len(peer) == 0 && !within(20*time.Second, func() bool { return listens(port) }) {
		t.Fatalf("ibv_rc_pingpong does not listen on port %d", port)
	}
	return c
}

// A thousand messages of 4096 bytes each way are 8,192,000 bytes, sent and received on this device.
func TestProcfsCountsWhatVerbsProgramsSend(t *testing.T) {
	const bytes = 2 * 1000 * 4096
	pingpong(t, 18701) // counts are kept as long as a process has the device open
	before := port(t).Counters
	if before.PortXmitData == nil || before.PortRcvData == nil {
		t.Fatal("no counters")
	}
	server := pingpong(t, 18702)
	client := pingpong(t, 18702, "127.0.0.1")
	if err := errors.Join(client.Wait(), server.Wait()); err != nil {
		t.Fatal(err)
	}
	var sent, received uint64
	if !within(10*time.Second, func() bool {
		now := port(t).Counters
		sent, received = *now.PortXmitData-*before.PortXmitData, *now.PortRcvData-*before.PortRcvData
		return sent == bytes && received == bytes
	}) {
		t.Fatalf("%d bytes sent, %d received, of %d", sent, received, bytes)
	}
}

func TestRdmamapFindsTheDeviceOfAnInterface(t *testing.T) {
	found, err := rdmamap.GetRdmaDeviceForNetdevice(iface)
	if err != nil || found != device {
		t.Fatalf("%q, %v", found, err)
	}
}

func TestRdmamapFindsCharacterDevices(t *testing.T) {
	for _, path := range rdmamap.GetRdmaCharDevices(device) {
		if strings.HasPrefix(path, "/dev/infiniband/uverbs") {
			if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeCharDevice == 0 {
				t.Fatalf("%v, %v", info, err)
			}
			return
		}
	}
	t.Fatal(rdmamap.GetRdmaCharDevices(device))
}

func TestRdmamapReadsCounters(t *testing.T) {
	stats, err := rdmamap.GetRdmaSysfsAllPortsStats(device)
	if err != nil || len(stats.PortStats) != 1 || len(stats.PortStats[0].Stats) == 0 || len(stats.PortStats[0].HwStats) == 0 {
		t.Fatalf("%+v, %v", stats, err)
	}
}

// No file answers for a netlink socket, and the preload does not reach this one.
func TestNetlinkListsTheKernelsDevicesAlone(t *testing.T) {
	links, err := netlink.RdmaLinkList()
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Skip("this kernel has no RDMA, and a socket made by a direct system call asks nobody else")
	}
	for _, link := range links {
		if link.Attrs.Name == device {
			t.Fatalf("%s is on a socket of the kernel: correct docs/tree.md", device)
		}
	}
}
