//! Plain values between this crate and its callers: parameters in, reports out.

pub mod params;

pub mod report;

pub mod segmentation;
