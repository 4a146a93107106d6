//! Verdicts of the XDP program, one counter of packets each. The list is `recoded_wire`'s, from
//! which the program is built.

use recoded_wire::steer::Verdict;

use crate::{Counter, Table, Unit};

/// Counters of the XDP program.
pub const TABLE: Table = Table { owner: "the XDP program", parts: &[&COUNTERS] };

const COUNTERS: [Counter; Verdict::ALL.len()] = {
    let mut counters = [counter(Verdict::Redirected); Verdict::ALL.len()];
    let mut index = 0;
    while index < counters.len() {
        counters[index] = counter(Verdict::ALL[index]);
        index += 1;
    }
    counters
};

const fn counter(verdict: Verdict) -> Counter {
    Counter {
        name: verdict.name(),
        unit: Unit::Packets,
        meaning: verdict.meaning(),
        cure: verdict.cure(),
    }
}
