//! Checks packets that enter and leave the tunnel. Packets are computed from their number, so
//! memory use does not depend on their count.

use std::collections::BTreeSet;
use std::ops::Range;

use recoded_pipeline::params::Nanos;

use crate::delay::Delays;
use crate::scenario::Promise;
use crate::traffic::Traffic;
use crate::violation::Violation;

/// Offset of the options in an IPv4 header, which hold the number of the packet. The ports of its
/// inner flow follow.
const OPTIONS: usize = 20;
const PORTS: usize = 24;

/// Offset of the length field in a TCP header.
const DATA_OFFSET: usize = 12;

/// Version and length of a header with four bytes of options.
const VERSION_LENGTH: u8 = 0x46;

const PROTOCOL_TCP: u8 = 6;

/// An inner flow, whose packets arrive in order.
#[derive(Copy, Clone)]
struct Flow {
    /// The next number expected: all before were delivered or passed over.
    next: u32,
    /// The last one since the sink started; a restart loses the record of earlier deliveries.
    last: Option<u32>,
    /// Packets before this one may have been delivered by a sink that has restarted since.
    forgotten: u32,
}

/// Keeps account of the packets delivered.
pub(crate) struct Oracle {
    seed: u64,
    traffic: Traffic,
    promise: Promise,
    flows: Vec<Flow>,
    /// Until this time, stragglers from before the restart of the source may arrive late and
    /// repeatedly, and make the sink forget packets and deliver them again.
    unsettled_until: Nanos,
    /// Packets delivered; delivered again after a loss of the sink's memory; different from any
    /// packet sent.
    pub delivered: u64,
    pub repeated: u64,
    pub foreign: u64,
    /// Undelivered packets whose delivery was promised, and the first of them.
    pub missing: u64,
    first_missing: u32,
    /// Undelivered packets that may still be delivered.
    passed_over: BTreeSet<u32>,
    /// From entering the source to leaving the sink.
    pub delays: Delays,
    expected: Vec<u8>,
    /// Whether each packet was delivered.
    seen: Vec<bool>,
}

impl Oracle {
    pub(crate) fn new(seed: u64, traffic: &Traffic, promise: &Promise) -> Oracle {
        Oracle {
            seed,
            traffic: traffic.clone(),
            promise: promise.clone(),
            flows: (0..traffic.flows.max(1))
                .map(|next| Flow { next, last: None, forgotten: 0 })
                .collect(),
            unsettled_until: 0,
            delivered: 0,
            repeated: 0,
            foreign: 0,
            missing: 0,
            first_missing: 0,
            passed_over: BTreeSet::new(),
            delays: Delays::default(),
            expected: Vec::new(),
            seen: vec![false; traffic.packets as usize],
        }
    }

    /// Writes packet `number`.
    pub(crate) fn packet(&self, number: u32, out: &mut Vec<u8>) {
        packet(self.seed, &self.traffic, number, out);
    }

    /// The sink lost all state, so it may deliver packets again.
    pub(crate) fn sink_forgot(&mut self) {
        for flow in &mut self.flows {
            (flow.last, flow.forgotten) = (None, flow.next);
        }
    }

    /// The source restarted, and draws new generation numbers.
    pub(crate) fn source_forgot(&mut self, unsettled_until: Nanos) {
        self.unsettled_until = unsettled_until;
    }

    /// Judges a delivered packet; returns its number where it has one.
    pub(crate) fn deliver(&mut self, bytes: &[u8], now: Nanos) -> Result<Option<u32>, Violation> {
        let Some(number) = self.identify(bytes, now) else {
            self.foreign += 1;
            return if self.promise.intact || self.promise.genuine {
                Err(Violation::Altered { at: now })
            } else {
                Ok(None)
            };
        };
        let was_seen = std::mem::replace(&mut self.seen[number as usize], true);
        if self.promise.genuine && was_seen {
            return Err(Violation::Repeated { packet: number });
        }
        let Promise { intact, unordered, late_nanos, .. } = &self.promise;
        let is_ordered = !unordered.iter().any(|time| time.contains(&now));
        let is_judged = *intact && is_ordered && now >= self.unsettled_until;
        let step = self.flows.len() as u32;
        let flow = &mut self.flows[self.traffic.flow(number) as usize];
        let is_new = number < flow.forgotten || self.passed_over.contains(&number);
        let is_late = is_new && now - self.traffic.due(number) >= *late_nanos;
        match flow.last {
            Some(last) if is_judged && number <= last && !is_late => {
                return Err(Violation::OutOfOrder { packet: number, after: last });
            }
            last => flow.last = last.max(Some(number)),
        }
        if number < flow.next {
            self.deliver_late(number, now);
            return Ok(Some(number));
        }
        let passed_over = flow.next..number;
        flow.next = number + step;
        self.pass_over(passed_over);
        self.delivered += 1;
        self.delays.record(now - self.traffic.due(number));
        Ok(Some(number))
    }

    /// Checks a packet that precedes delivered ones: a repetition, or so late that they did not
    /// wait for it.
    fn deliver_late(&mut self, number: u32, now: Nanos) {
        if !self.passed_over.remove(&number) {
            self.repeated += 1;
            return;
        }
        self.missing -= u64::from(self.is_promised(number));
        self.delivered += 1;
        self.delays.record(now - self.traffic.due(number));
    }

    fn is_promised(&self, number: u32) -> bool {
        let Promise { delivered: Some(promised), opening, .. } = &self.promise else {
            return false;
        };
        let due = self.traffic.due(number);
        promised.contains(&due) && !opening.iter().any(|time| time.contains(&due))
    }

    /// The number of a packet that equals one sent by now, byte for byte.
    fn identify(&mut self, bytes: &[u8], now: Nanos) -> Option<u32> {
        let number = bytes.get(OPTIONS..PORTS)?;
        let number = u32::from_be_bytes(number.try_into().ok()?);
        if number >= self.traffic.packets || self.traffic.due(number) > now {
            return None;
        }
        let mut expected = std::mem::take(&mut self.expected);
        self.packet(number, &mut expected);
        self.expected = expected;
        (self.expected == bytes).then_some(number)
    }

    /// Packets of an inner flow among `numbers` are not delivered.
    fn pass_over(&mut self, numbers: Range<u32>) {
        let (mut first, mut count) = (None, 0);
        for number in numbers.step_by(self.flows.len()) {
            if self.promise.late_nanos < Nanos::MAX {
                self.passed_over.insert(number);
            }
            if self.is_promised(number) {
                first.get_or_insert(number);
                count += 1;
            }
        }
        if self.missing == 0 {
            self.first_missing = first.unwrap_or(0);
        }
        self.missing += count;
    }

    /// Judges the whole at the end of the run.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        for flow in 0..self.flows.len() {
            let next = std::mem::replace(&mut self.flows[flow].next, self.traffic.packets);
            self.pass_over(next..self.traffic.packets.max(next));
        }
        if self.missing > self.promise.missing_max {
            return Err(Violation::Undelivered {
                missing: self.missing,
                first: self.first_missing,
            });
        }
        Ok(())
    }
}

fn packet(seed: u64, traffic: &Traffic, number: u32, out: &mut Vec<u8>) {
    let mut state = seed ^ u64::from(number) << 32;
    let (least, most) = (*traffic.bytes.start(), *traffic.bytes.end());
    let least = least.max(Traffic::BYTES_MIN);
    let bytes = least + split_mix(&mut state) as usize % (most.max(least) - least + 1);
    out.clear();
    while out.len() < bytes {
        out.extend_from_slice(&split_mix(&mut state).to_le_bytes());
    }
    out.truncate(bytes);
    out[0] = VERSION_LENGTH;
    out[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    // No fragment: whole packets of a TCP flow are delivered in order.
    out[6..8].fill(0);
    out[9] = PROTOCOL_TCP;
    out[12..OPTIONS].fill(10);
    out[OPTIONS..PORTS].copy_from_slice(&number.to_be_bytes());
    out[PORTS..PORTS + 4].copy_from_slice(&traffic.flow(number).to_be_bytes());
    // It carries data: acknowledgements have no order.
    out.iter_mut().skip(PORTS + DATA_OFFSET).take(1).for_each(|offset| *offset = 0);
}

/// SplitMix64: bytes that no other packet has, at little cost.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle(intact: bool, flows: u32) -> Oracle {
        let traffic = Traffic {
            packets: 100,
            alone: (0, 0),
            bytes: 28..=90,
            interval_nanos: 10,
            alone_nanos: 10,
            burst: 1,
            pauses: None,
            flows,
        };
        let promise = Promise {
            intact,
            genuine: false,
            delivered: Some(200..400),
            missing_max: 0,
            opening: vec![0..10, 210..220],
            unordered: vec![3000..4000, 5000..6000],
            late_nanos: Nanos::MAX,
        };
        Oracle::new(1, &traffic, &promise)
    }

    fn bytes(oracle: &Oracle, number: u32) -> Vec<u8> {
        let mut packet = Vec::new();
        oracle.packet(number, &mut packet);
        packet
    }

    #[test]
    fn packets_in_order_pass_and_only_promised_gaps_count() {
        let mut oracle = oracle(true, 1);
        for number in (0..100).filter(|number| !(5..20).contains(number) && *number < 45) {
            let packet = bytes(&oracle, number);
            assert_eq!(oracle.deliver(&packet, 1000), Ok(Some(number)));
        }
        assert_eq!(oracle.finish(), Ok(()));
        assert_eq!((oracle.delivered, oracle.missing), (30, 0));
    }

    #[test]
    fn a_promised_packet_that_is_missing_is_told() {
        let mut oracle = oracle(true, 1);
        for number in (0..100).filter(|number| *number != 30 && *number != 33) {
            let packet = bytes(&oracle, number);
            oracle.deliver(&packet, 1000).unwrap();
        }
        assert_eq!(oracle.finish(), Err(Violation::Undelivered { missing: 2, first: 30 }));
    }

    #[test]
    fn altered_repeated_and_early_packets_are_told() {
        let mut oracle = oracle(true, 1);
        let (five, six) = (bytes(&oracle, 5), bytes(&oracle, 6));
        assert_eq!(oracle.deliver(&six, 1000), Ok(Some(6)));
        assert_eq!(oracle.deliver(&five, 1000), Err(Violation::OutOfOrder { packet: 5, after: 6 }));
        assert_eq!(oracle.deliver(&six, 1000), Err(Violation::OutOfOrder { packet: 6, after: 6 }));
        oracle.source_forgot(2000);
        assert_eq!(oracle.deliver(&five, 1999), Ok(Some(5)));
        assert_eq!(oracle.deliver(&six, 2000), Err(Violation::OutOfOrder { packet: 6, after: 6 }));
        let mut altered = bytes(&oracle, 7);
        assert_eq!(oracle.deliver(&altered, 60), Err(Violation::Altered { at: 60 }));
        altered[27] ^= 1;
        assert_eq!(oracle.deliver(&altered, 1000), Err(Violation::Altered { at: 1000 }));
        oracle.sink_forgot();
        assert_eq!(oracle.deliver(&six, 1000), Ok(Some(6)));
        assert_eq!(oracle.repeated, 2);
    }

    /// A source may retransmit packets that a sink delivered before it lost its state.
    #[test]
    fn what_a_sink_forgot_may_come_again_late_but_not_early() {
        let mut oracle = oracle(true, 1);
        oracle.promise.late_nanos = 2000;
        let packets: Vec<Vec<u8>> = (0..3).map(|number| bytes(&oracle, number)).collect();
        assert_eq!(oracle.deliver(&packets[0], 1000), Ok(Some(0)));
        oracle.sink_forgot();
        assert_eq!(oracle.deliver(&packets[1], 1000), Ok(Some(1)));
        let early = oracle.deliver(&packets[0], 1500);
        assert_eq!(early, Err(Violation::OutOfOrder { packet: 0, after: 1 }));
        assert_eq!(oracle.deliver(&packets[0], 2500), Ok(Some(0)));
        let known = oracle.deliver(&packets[1], 2500);
        assert_eq!(known, Err(Violation::OutOfOrder { packet: 1, after: 1 }));
    }

    #[test]
    fn inner_flows_are_ordered_each_by_itself() {
        let mut oracle = oracle(true, 3);
        let mut deliver = |number: u32, now| {
            let packet = bytes(&oracle, number);
            oracle.deliver(&packet, now)
        };
        assert_eq!(deliver(6, 1000), Ok(Some(6)));
        assert_eq!(deliver(4, 1000), Ok(Some(4)));
        assert_eq!(deliver(3, 1000), Err(Violation::OutOfOrder { packet: 3, after: 6 }));
        assert_eq!(deliver(3, 3500), Ok(Some(3)));
        // Of 20 to 39, one may be missing at any time.
        for number in (7..100).filter(|number| ![21, 34].contains(number)) {
            assert_eq!(deliver(number, 1000), Ok(Some(number)));
        }
        assert_eq!(oracle.finish(), Err(Violation::Undelivered { missing: 1, first: 34 }));
    }

    #[test]
    fn a_packet_that_comes_late_once_is_not_missing() {
        let mut oracle = oracle(true, 1);
        oracle.promise.late_nanos = 2000;
        let (five, thirty) = (bytes(&oracle, 5), bytes(&oracle, 30));
        for number in (0..100).filter(|number| ![5, 30].contains(number)) {
            let packet = bytes(&oracle, number);
            oracle.deliver(&packet, 1000).unwrap();
        }
        let early = oracle.deliver(&thirty, 2299);
        assert_eq!(early, Err(Violation::OutOfOrder { packet: 30, after: 99 }));
        assert_eq!((oracle.missing, oracle.deliver(&thirty, 2300)), (1, Ok(Some(30))));
        let again = oracle.deliver(&thirty, 2300);
        assert_eq!(again, Err(Violation::OutOfOrder { packet: 30, after: 99 }));
        assert_eq!(oracle.deliver(&five, 2300), Ok(Some(5)));
        assert_eq!((oracle.finish(), oracle.delivered), (Ok(()), 100));
    }

    #[test]
    fn sealed_packets_come_in_any_order_but_once_and_no_others() {
        let mut oracle = oracle(false, 1);
        oracle.promise.genuine = true;
        let (five, six) = (bytes(&oracle, 5), bytes(&oracle, 6));
        assert_eq!(oracle.deliver(&six, 1000), Ok(Some(6)));
        assert_eq!(oracle.deliver(&five, 1000), Ok(Some(5)));
        oracle.sink_forgot();
        assert_eq!(oracle.deliver(&six, 1000), Err(Violation::Repeated { packet: 6 }));
        assert_eq!(oracle.deliver(&[1; 30], 1000), Err(Violation::Altered { at: 1000 }));
    }

    #[test]
    fn without_the_promise_foreign_packets_are_counted() {
        let mut oracle = oracle(false, 1);
        assert_eq!(oracle.deliver(&[1; 30], 1000), Ok(None));
        assert_eq!(oracle.foreign, 1);
    }
}
