//! Plain values between this crate and its callers: parameters in, reports out.

pub(crate) mod code;

pub mod params;

pub mod report;

pub mod segmentation;
