#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# meson-python 0.22.1 with meson 1.12.1, 28 November 2026 (their issue 517 is about it, too).
#
# A file that meson installs into the folder of the option `datadir`, whose value is "share", is put by a wheel
# into the environment itself, without "share"; and `mandir`, which is "share/man", is refused. Seen:
#
#   meson install: share/man/man1/probe.1
#   the wheel: probe-1.data/data/man/man1/probe.1
#   mandir: Could not map installation path to an equivalent wheel directory: '{mandir}/man1/probe.1'
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install meson-python==0.22.1 meson==1.12.1 ninja build
PATH=$PWD/venv/bin:$PATH
mkdir probe
cd probe
cat >pyproject.toml <<'END'
[build-system]
requires = ["meson-python"]
build-backend = "mesonpy"
[project]
name = "probe"
version = "1"
END
echo '.Dd November 28, 2026' >probe.1
wheel() {
	cat >meson.build <<END
project('probe', version: '1')
py = import('python').find_installation()
install_data('probe.1', install_dir: get_option('$1') / '$2', install_tag: 'python-runtime')
END
	rm -rf dist
	python3 -m build --wheel --no-isolation -o dist . 2>&1
}
wheel datadir man/man1 >log
packed=$(python3 -m zipfile -l dist/*.whl | awk '/probe\.1 / { print $1 }')
meson setup build >log
DESTDIR=$PWD/dest meson install -C build >log
installed=$(cd dest && find . -name probe.1 | sed 's|.*/\(share/.*\)|\1|')
refused=$(wheel mandir man1 | grep -o "Could not map.*") || true
echo "meson install: $installed"
echo "the wheel: $packed"
echo "mandir: $refused"
[ "$installed" = share/man/man1/probe.1 ] && [ "$packed" = probe-1.data/data/man/man1/probe.1 ] && [[ $refused == *"'{mandir}/man1/probe.1'"* ]]
