//! The device code, run on the CPU by the shim, against the CPU's kernels: bit for bit.

mod card;

mod coefficients;
mod decode;
mod layout;
mod matmul;
mod probe;
mod reed_solomon;
mod shim;
