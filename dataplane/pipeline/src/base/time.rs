//! Time of the caller's clock.

/// Nanoseconds of the caller's monotonic clock. The pipeline never reads a clock itself.
pub type Nanos = u64;

/// The earlier of two deadlines.
pub(crate) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
