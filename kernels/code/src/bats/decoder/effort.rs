//! Work limit of a decoder call.

/// The remaining work of a call, in bytes of rows that are multiplied and added: of payloads and of
/// coefficients. It is checked between parts of the work, so that a call does at most one part too
/// many.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    left: usize,
    symbol_bytes: usize,
}

impl Effort {
    /// No limit.
    pub const UNLIMITED: Self = Self { left: usize::MAX, symbol_bytes: 0 };

    /// About `bytes`, for symbols of `symbol_bytes`.
    #[must_use]
    pub const fn new(bytes: usize, symbol_bytes: usize) -> Self {
        Self { left: bytes, symbol_bytes }
    }

    /// Whether the limit is reached.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Counts products of a coefficient and a symbol.
    pub(super) const fn spend_symbols(&mut self, products: usize) {
        self.left = self.left.saturating_sub(products * self.symbol_bytes);
    }

    /// Counts work on coefficients: rows are short, so that each costs more than its bytes.
    pub(super) const fn spend(&mut self, rows: usize, bytes: usize) {
        let cost = rows.saturating_mul(bytes + ROW_BYTES);
        if self.left != usize::MAX {
            self.left = self.left.saturating_sub(cost);
        }
    }
}

/// Fixed cost of an operation on a row, however short it is.
const ROW_BYTES: usize = 256;
