# SPDX-License-Identifier: BSD-3-Clause
"""The two programs of python/ucp/README.md, as they stand there, find each other."""

import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, "../../../python/ucp/README.md")
LIMIT_S = 60


def test_programs_of_the_readme(tmp_path):
    server, client = re.findall(r"(?ms)^```python\n(.*?)^```$", open(README, encoding="utf-8").read())
    behind = subprocess.Popen([sys.executable, "-c", server], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + LIMIT_S
        while True:  # the server says nothing when it listens
            assert behind.poll() is None, behind.stderr.read()
            got = subprocess.run([sys.executable, "-c", client], capture_output=True, text=True, timeout=LIMIT_S)
            if got.returncode == 0 or time.monotonic() > end:
                break
        assert got.returncode == 0, got.stderr
        assert "[ 1  2  3  4  5  6  7  8  9 10]" in got.stdout
        assert behind.wait(LIMIT_S) == 0, behind.stderr.read()
    finally:
        behind.kill()
        behind.wait()
        behind.stderr.close()
