//! Measures a path between two hosts that run only this program, and forecasts Recoded's benefit on
//! it.
//!
//! Place: off the packet path; used by `recodectl plan`. No privileges, no daemon. One end listens
//! ([`listen`]), the other one measures ([`measure`]), in both directions. [`forecast`] computes
//! from measurements of one hop or of several.
//!
//! Everything from the network may be forged. It is parsed once ([`packet`]), determines the size
//! of no allocation and no loop, and is checked for plausibility.

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
