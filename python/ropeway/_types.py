# SPDX-License-Identifier: BSD-3-Clause
"""Types that annotations name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Buffer as _Buffer

    class SupportsDLPack(Protocol):
        """numpy's arrays (whose buffers type checkers know from Python 3.12 on), PyTorch's tensors."""

        def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    class SupportsCudaArray(Protocol):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    Buffer = _Buffer | SupportsDLPack | SupportsCudaArray
    Address = str | tuple[str, int]
else:
    Buffer = Address = Any

__all__ = ["Address", "Buffer", "text_of"]


def text_of(address: Address) -> str:
    """Of (host, port), as sockets take it, the text of the library."""
    if isinstance(address, str):
        return address
    if isinstance(address, tuple) and len(address) >= 2 and isinstance(address[0], str):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    raise TypeError(f'an address is "host:port" or (host, port), not {address!r}')
