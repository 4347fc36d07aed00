# SPDX-License-Identifier: BSD-3-Clause
"""`python -m ropeway`: the command."""

from _ropeway_command import main

main()
