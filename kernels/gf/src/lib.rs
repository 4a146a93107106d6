//! Arithmetic over GF(256) modulo 0x11D and its subfields, and over other small fields, on whole
//! symbols.
//!
//! The innermost crate of the path: bytes in, bytes out. It performs no I/O, reads no clock and
//! allocates nothing after the first call of [`Kernel::best`]. Vector code is chosen once per
//! process and reached through [`Kernel`]; every level computes exactly what the `naive` one does.
//!
//! ```
//! use recoded_gf::{FieldOrder, Kernel, inverse, mul};
//!
//! let kernel = Kernel::best();
//! let sources: [&[u8]; 2] = [b"first symbol", b"other symbol"];
//! let coefficients = [3, 7]; // one destination, two sources
//! let mut coded = [0; 12];
//! kernel.matmul(&coefficients, &sources, &mut [&mut coded]);
//! assert_eq!(coded[0], mul(3, b'f') ^ mul(7, b'o'));
//! assert_eq!(mul(5, inverse(5).unwrap()), 1);
//! assert_eq!(FieldOrder::Sixteen.bits(), 4);
//! ```

mod field;
mod order;
mod table;

mod carry_less;
mod kernel;
mod matrix;

mod arch;

pub use carry_less::CarryLess;
pub use field::{Field, ParseFieldError};
pub use kernel::{ForceError, KERNEL_VARIABLE, Kernel, LevelInfo};
pub use matrix::{SIZE_MAX, Singular};
pub use order::{FieldOrder, ParseFieldOrderError};
pub use table::{inverse, mul};
