//! Measurements: the rate of encoding alone, which the papers divided by the rate of a peer, and
//! the number of peers that servers sustain over the loopback interface.

mod encode;
mod load;
mod viewer;

pub use encode::{Encoding, encoding};
pub use load::{Load, LoadOptions, load};
