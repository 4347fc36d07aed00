# SPDX-License-Identifier: BSD-3-Clause
"""What all objects of ucp._libs.ucx_api share, and the context that options belong to."""

import enum
import logging
import os
import weakref

import ropeway
from ropeway._ucx.calls import FEATURES, Feature, translated  # noqa: F401

from .._version import __ucx_version_info__
from . import config
from .exceptions import of_sentence

logger = logging.getLogger("ucx")


class AllocatorType(enum.Enum):
    """Whose memory an allocator of active messages gives."""

    HOST = 0
    CUDA = 1
    UNSUPPORTED = -1


def get_ucx_version():
    """The version of UCX whose behavior programs may count on: (major, minor, release)."""
    return __ucx_version_info__


def get_current_options():
    """The options that a context would have if it were made now."""
    return config.current()


class UCXObject:
    """Closes those that were made from it before itself. `_close` is called once at most."""

    initialized = False
    _children = ()

    def _open(self, parent=None):
        self.initialized = True
        self._children = []
        if parent is not None:
            parent._children = [c for c in parent._children if c() is not None]
            parent._children.append(weakref.ref(self))

    def close(self):
        """Frees what is below it. Does nothing where that was done before."""
        if not self.initialized:
            return
        self.initialized = False
        for child in self._children:
            if (child := child()) is not None:
                child.close()
        self._close()

    def _close(self):
        raise NotImplementedError

    def __del__(self):
        self.close()


class UCXContext(UCXObject):
    """Options, and the features that calls are checked against.

    config_dict: options by their names without "UCX_", each a str. UCXConfigError: one has a
    value that it cannot have.
    """

    def __init__(
        self,
        config_dict={},
        feature_flags=FEATURES,
    ):
        self._config = config.current(config_dict)
        self._feature_flags = tuple(feature_flags)
        self.cuda_support = config.cuda_support(self._config)
        self.eager_bytes = config.eager_bytes(self._config)
        self._home = None
        self._home_taken = False
        self._open()
        if logger.isEnabledFor(logging.INFO):
            logger.info("UCP initiated using config: ")
            for name, value in self._config.items():
                logger.info("  %s: %s", name, value)

    def core(self):
        """A ropeway context with these options."""
        with translated(of_sentence):
            return ropeway.core.Context(
                None,
                config.transports(self._config),
                rdma_devices=config.rdma_devices(self._config),
            )

    def home(self):
        """The ropeway context that memory is registered with. The first worker has it, too."""
        if self._home is None:
            self._home = self.core()
        return self._home

    def names(self):
        """The names, as UCX has them, of the transports that its workers may use."""
        chosen = (config.transports(self._config) or _of_environment()).split(",")
        ours = {"shm": "posix", "tcp": "tcp", "verbs": "rc_verbs"}
        return [ours[name] for name in chosen if name in ours]

    def get_config(self):
        """All options, by name."""
        return self._config

    @property
    def handle(self):
        """A number that no other context of this process has."""
        assert self.initialized
        return id(self)

    def info(self):
        """Its transports, a line each."""
        lines = ["#", "# UCP context (ropeway %s)" % ropeway.__version__, "#"]
        for n, name in enumerate(self.names()):
            lines.append(f"#  resource {n} : md {n} dev {n} flags -- {name}/{_devices(name)}")
        return "\n".join(lines + ["#", ""])

    def map(self, mem):
        """Registers a buffer for puts and gets of peers."""
        from .memory import UCXMemoryHandle

        return UCXMemoryHandle.map(self, mem)

    def alloc(self, size):
        """Registered memory of `size` bytes."""
        from .memory import UCXMemoryHandle

        return UCXMemoryHandle.alloc(self, size)

    def _close(self):
        home, self._home = self._home, None
        if home is not None:
            close_core(home)


def _devices(name):
    return {"posix": "memory", "tcp": "all", "rc_verbs": "all"}[name]


def _of_environment():
    return os.environ.get("ROPEWAY_TRANSPORT") or ",".join(config.ALL)


def close_core(core, context=None):
    """Closes a ropeway context, or a listener of `context`; from another thread than its own, by
    way of its loop."""
    if core.closed:
        return
    try:
        core.close()
    except RuntimeError:
        loop = (context or core).loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(core.close)
