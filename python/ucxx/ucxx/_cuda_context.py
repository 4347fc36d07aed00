# SPDX-License-Identifier: BSD-3-Clause
"""CUDA contexts, by cuda-core where that is installed. Nothing here is needed for host memory."""

from __future__ import annotations


def _device(device_id: int):
    try:
        from cuda.core import Device
    except ImportError:
        try:
            from cuda.core.experimental import Device
        except ImportError as error:
            raise ImportError(
                "CUDA contexts need the package cuda-core (0.5.1 or later)"
            ) from error
    return Device(device_id)


def ensure_cuda_context(device_id: int = 0) -> None:
    """Makes the device's context the current one, and first makes it where there is none."""
    _device(device_id).set_current()


def synchronize_default_stream(device_id: int = 0) -> None:
    """Waits until what the default stream of the device has been given is done.

    What is sent from a GPU has to be there first.
    """
    device = _device(device_id)
    device.set_current()
    device.sync()
