//! Received packets of any code: parsed, their sizes, and the symbols collected from them.

pub(crate) mod arrival;

pub(crate) mod announced_sizes;

pub(crate) mod collected;

pub(crate) mod freshness;

pub(crate) mod incoming;
