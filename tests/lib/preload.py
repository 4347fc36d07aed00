"""A library's path for LD_PRELOAD, which the loader splits at spaces and colons: its own, or in a checkout whose path has one that of a link, which goes when the test ends."""
import atexit
import functools
import pathlib
import shutil
import tempfile


@functools.cache
def _link(folder):
    place = tempfile.mkdtemp(prefix="ropeway-preload-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    pathlib.Path(place).chmod(0o755)  # for tests that become another user
    link = pathlib.Path(place, "lib")
    link.symlink_to(folder)
    return link


def preloadable(library):
    library = pathlib.Path(library)
    return _link(library.parent) / library.name if any(c in str(library) for c in " :") else library
