//! Measures a path between two hosts on which nothing of Recoded runs but this, and forecasts what
//! Recoded would bring on it.
//!
//! Place: beside the packet path; used by `recodectl plan`. No privileges, no daemon. One end
//! listens ([`listen`]), the other one measures ([`measure`]), both directions. [`forecast`] is
//! arithmetic on what was measured, of one hop or of several.
//!
//! Everything that comes from the network may be forged: it is parsed once ([`packet`]), sizes no
//! allocation and no loop, and is held against what can be true.

#![forbid(unsafe_code)]

pub mod packet;

pub mod summary;
pub mod train;

pub mod socket;

pub mod listen;

pub mod ramp;

pub mod measure;

pub mod measured;

pub mod forecast;

pub mod advice;

pub mod error;
