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
else:
    Buffer = Any

__all__ = ["Buffer"]
