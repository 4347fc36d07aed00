// SPDX-License-Identifier: BSD-3-Clause

// plain lists what lies below each path as plain.c does, by Go's own system calls.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func number(err error) int {
	var n syscall.Errno
	if errors.As(err, &n) {
		return int(n)
	}
	return -1
}

func show(path string) {
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		fmt.Printf("? %s ! %d\n", path, number(err))
	case st.Mode()&os.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		fmt.Printf("l %s -> %s\n", path, to)
	case st.Mode().IsRegular():
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Printf("- %s ! %d\n", path, number(err))
		} else {
			fmt.Printf("- %s = %s\n", path, strings.ReplaceAll(string(text), "\n", `\n`))
		}
	case !st.IsDir():
		fmt.Printf("c %s\n", path)
	default:
		fmt.Printf("d %s\n", path)
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			show(path + "/" + e.Name())
		}
	}
}

func main() {
	for _, path := range os.Args[1:] {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			fmt.Printf("? %s ! %d\n", path, number(err))
			continue
		}
		show(real)
	}
}
