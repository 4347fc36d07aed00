# SPDX-License-Identifier: BSD-3-Clause
"""The console script of the wheel: becomes the command, which lies below the package `ropeway`. The
package is not imported: that would take longer than most commands do."""

import os
import sys

import _signal

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ropeway", "bin", "ropeway")


def main() -> None:
    # Python ignores these, and a program inherits what is ignored.
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(ignored, _signal.SIG_DFL)
    try:
        os.execv(PROGRAM, ["ropeway", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"ropeway: the command {PROGRAM} cannot be run: {e.strerror}; install the wheel again")
