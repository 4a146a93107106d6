"""Random linear network coding (RLNC) and Reed-Solomon codes over GF(2^8)."""

from ._recoded import Decoder, Encoder, NotReadyError, Recoder, ReedSolomon, __version__

__all__ = ["Decoder", "Encoder", "NotReadyError", "Recoder", "ReedSolomon", "__version__"]
