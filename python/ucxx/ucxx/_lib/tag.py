# SPDX-License-Identifier: BSD-3-Clause
"""Tags and tag masks: 64-bit numbers with a type of their own."""

from __future__ import annotations


class _Bits:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        number = value.value if isinstance(value, _Bits) else int(value)
        if not 0 <= number < 1 << 64:
            raise OverflowError(f"{type(self).__name__}: {value} is not in 0..2**64-1")
        object.__setattr__(self, "value", number)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"attribute '{name}' of '{type(self).__name__}' is not writable")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return self.value == other.value
        if isinstance(other, int):
            return self.value == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"

    def __reduce__(self) -> tuple:
        return type(self), (self.value,)


class UCXXTag(_Bits):
    """The tag of a message: it is received where it is equal in all bits of the receive's mask."""

    __slots__ = ()


class UCXXTagMask(_Bits):
    """Which bits of a tag have to be equal."""

    __slots__ = ()


UCXXTagMaskFull = UCXXTagMask((1 << 64) - 1)
