//! How much a call of the decoder may do.

/// What a call may still do, in bytes of rows that are multiplied and added: of payloads, and of
/// coefficients. It is looked at between parts of the work, so that a call does one part more at
/// most.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    left: usize,
    symbol_bytes: usize,
}

impl Effort {
    /// As much as there is to do.
    pub const UNLIMITED: Self = Self { left: usize::MAX, symbol_bytes: 0 };

    /// About `bytes`, where a symbol has `symbol_bytes`.
    #[must_use]
    pub const fn new(bytes: usize, symbol_bytes: usize) -> Self {
        Self { left: bytes, symbol_bytes }
    }

    /// Whether nothing more may be done.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Notes so many products of a coefficient and a symbol.
    pub(super) const fn spend_symbols(&mut self, products: usize) {
        self.left = self.left.saturating_sub(products * self.symbol_bytes);
    }

    /// Notes work on coefficients: rows are short, so that each costs more than its bytes.
    pub(super) const fn spend(&mut self, rows: usize, bytes: usize) {
        let cost = rows.saturating_mul(bytes + ROW_BYTES);
        if self.left != usize::MAX {
            self.left = self.left.saturating_sub(cost);
        }
    }
}

/// What an operation on a row costs, however short it is.
const ROW_BYTES: usize = 256;
