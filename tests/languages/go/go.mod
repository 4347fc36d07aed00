module ropeway/languages

go 1.26.0

require (
	github.com/Mellanox/rdmamap v1.1.0
	github.com/prometheus/procfs v0.23.0
	github.com/vishvananda/netlink v1.3.1
)

require (
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
