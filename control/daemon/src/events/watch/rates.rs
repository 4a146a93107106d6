//! Send rates of next hops: reported if one has changed by more than half, and stays so.

use crate::events::{Happened, Kind};
use recoded_api::v1::{Flow, FlowNeighbour};
use std::collections::BTreeMap;

/// Looks that a rate must differ for: a probed estimate fluctuates for a second or two.
const LOOKS: u32 = 5;

/// The last reported rates, by flow and next hop.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<(u64, String), Told>);

#[derive(Debug)]
struct Told {
    mbit: f64,
    /// Looks since which it differs, and whether it is higher.
    differs: u32,
    is_more: bool,
    /// Looks until the first rate is recorded.
    settling: u32,
}

impl Rates {
    /// Reports changed rates.
    pub fn look(&mut self, flows: &[Flow], events: &mut Vec<Happened>) {
        let mut known = std::mem::take(&mut self.0);
        for flow in flows {
            // Without a report the rate is only a guess.
            let heard = flow.neighbours.iter().filter(|hop| hop.round_trip_us.is_some());
            for hop in heard.filter(|hop| !hop.silent) {
                let key = (flow.id, hop.next_hop.clone());
                let mut told = known.remove(&key).unwrap_or_else(|| Told::new(hop.rate_mbit));
                events.extend(told.look(hop).map(|text| {
                    let subject = format!("flow {}", flow.id);
                    Happened::new(Kind::RateChanged, subject, text).about(&hop.next_hop)
                }));
                self.0.insert(key, told);
            }
        }
    }
}

impl Told {
    fn new(mbit: f64) -> Told {
        Told { mbit, differs: 0, is_more: false, settling: LOOKS }
    }

    fn look(&mut self, hop: &FlowNeighbour) -> Option<String> {
        let (now, before) = (hop.rate_mbit, self.mbit);
        if self.settling > 0 {
            self.settling -= 1;
            self.mbit = now;
            return None;
        }
        if (now - before).abs() <= before / 2.0 {
            self.differs = 0;
            return None;
        }
        let is_more = now > before;
        self.differs = if self.is_more == is_more { self.differs + 1 } else { 1 };
        self.is_more = is_more;
        if self.differs < LOOKS {
            return None;
        }
        (self.mbit, self.differs) = (now, 0);
        Some(format!("{now:.1} Mbit/s to {}, before {before:.1}", hop.next_hop))
    }
}
