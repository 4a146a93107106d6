//! Leaves: time, layout of packets in frames, and tables. They import nothing of this crate.

pub(crate) mod time;

pub(crate) mod layout;

pub(crate) mod table;

pub(crate) mod rank;

pub(crate) mod tally;
