"""Random linear network coding (RLNC) and Reed-Solomon codes over GF(2^8).

Symbols, vectors and stripes are buffers of contiguous unsigned bytes: bytes, bytearray, memoryview,
or NumPy arrays of uint8. Inputs are read in place. Methods whose names end in `_into` write their
results into buffers of the caller, which must be writable and overlap nothing; the others return
bytes.

Python's lock is released while bytes are coded. Other threads must not change the buffers of a call
meanwhile. An encoder, a recoder or a decoder that another thread is using raises RuntimeError; a
ReedSolomon may be used by several threads at once.

Wrong sizes and ids raise ValueError, other buffers BufferError or TypeError. A refused call changes
nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from typing_extensions import Buffer  # collections.abc has it from Python 3.12 on

__all__ = ["Decoder", "Encoder", "NotReadyError", "Recoder", "ReedSolomon", "__version__"]

__version__: str

class NotReadyError(Exception):
    """There is nothing to code yet, or the symbol is not decoded yet."""

@final
class Encoder:
    """The source of a generation."""

    def __new__(
        cls, generation_size: int, symbol_bytes: int, *, seed: int | None = None
    ) -> Encoder:
        """For generations of 1 to 1024 symbols of `symbol_bytes` bytes.

        Equal seeds (0 to 2**64 - 1) give equal coefficients; without a seed it is random.
        """

    @property
    def generation_size(self) -> int:
        """Source symbols of a generation."""
    @property
    def symbol_bytes(self) -> int:
        """Bytes of a symbol."""
    @property
    def present(self) -> int:
        """Symbols added so far."""
    def set_systematic(self, is_systematic: bool) -> None:
        """Whether each symbol is first sent as it is (the default)."""
    def reset(self) -> None:
        """Begins the next generation."""
    def add(self, symbol: Buffer) -> None:
        """Copies the next source symbol. Packets may be taken before all are present."""
    def take(self) -> tuple[bytes, bytes]:
        """The next packet: its coding vector of `generation_size` bytes, and its symbol."""
    def take_into(self, vector: Buffer, symbol: Buffer) -> None:
        """Writes the next packet."""

@final
class Recoder:
    """A relay of a generation."""

    def __new__(
        cls, generation_size: int, symbol_bytes: int, *, seed: int | None = None
    ) -> Recoder:
        """As for `Encoder`."""

    @property
    def generation_size(self) -> int:
        """Source symbols of a generation."""
    @property
    def symbol_bytes(self) -> int:
        """Bytes of a symbol."""
    @property
    def rank(self) -> int:
        """Innovative packets held."""
    def reset(self) -> None:
        """Begins the next generation."""
    def add(self, vector: Buffer, symbol: Buffer) -> bool:
        """Takes a packet, copies it if it is innovative, and returns whether it is."""
    def take(self) -> tuple[bytes, bytes]:
        """A new packet, a random combination of all packets held: vector and symbol."""
    def take_into(self, vector: Buffer, symbol: Buffer) -> None:
        """Writes a new packet."""

@final
class Decoder:
    """The sink of a generation."""

    def __new__(cls, generation_size: int, symbol_bytes: int) -> Decoder:
        """For generations of 1 to 1024 symbols of `symbol_bytes` bytes."""

    @property
    def generation_size(self) -> int:
        """Source symbols of a generation."""
    @property
    def symbol_bytes(self) -> int:
        """Bytes of a symbol."""
    @property
    def rank(self) -> int:
        """Innovative packets received."""
    @property
    def decoded(self) -> int:
        """Decoded symbols."""
    @property
    def is_complete(self) -> bool:
        """Whether all symbols are decoded."""
    def reset(self) -> None:
        """Begins the next generation."""
    def add(self, vector: Buffer, symbol: Buffer) -> bool:
        """Takes a packet, copies it if it is innovative, and returns whether it is."""
    def next(self) -> tuple[int, bytes] | None:
        """The index and the bytes of a newly decoded symbol, each once; None if there is none."""
    def symbol(self, index: int) -> bytes:
        """One decoded symbol. Raises NotReadyError before, IndexError beyond the generation."""
    def decode(self) -> bytes:
        """All symbols one after another. Raises NotReadyError until all are decoded."""
    def decode_into(self, data: Buffer) -> None:
        """Writes all symbols one after another."""

@final
class ReedSolomon:
    """A systematic code: any `data` of all `data + parity` buffers recover the others.

    Buffers have ids: data buffers from 0 on, parity buffers after them.
    """

    def __new__(cls, data: int, parity: int) -> ReedSolomon:
        """Both at least 1, their sum at most 256."""

    @property
    def data(self) -> int:
        """Data buffers."""
    @property
    def parity(self) -> int:
        """Parity buffers."""
    def encode(self, data: Iterable[Buffer]) -> list[bytes]:
        """The parity buffers of data buffers of one length."""
    def encode_into(self, data: Iterable[Buffer], parity: Iterable[Buffer]) -> None:
        """Writes the parity buffers."""
    def recover(self, intact: Mapping[int, Buffer], lost: Sequence[int]) -> dict[int, bytes]:
        """The lost buffers by id, from at least `data` intact ones by id."""
    def recover_into(self, intact: Mapping[int, Buffer], lost: Mapping[int, Buffer]) -> None:
        """Writes the lost buffers."""
