//! The queue between a tunnel and the pipeline, where packets wait while their coded packets cannot
//! leave: FQ-CoDel (RFC 8290).
//!
//! Place: a worker has one per tunnel, and reads the tunnel into it ([`crate::feed`]), so that
//! next to nothing waits in Linux's own queue, which is one line for all flows. Pure: no I/O, no
//! clock. All memory is allocated at start.
//!
//! ```text
//!                        .-> flow 0    [ . . . . . ]  CoDel --.
//!  push -> hash of flow -+-> flow 1    [ . ]          CoDel --+- new flows, then old ones -> pop
//!                        `-> flow 1023 [ . . ]        CoDel --'  by turns of QUANTUM_BYTES
//! ```
//!
//! Packets of one flow keep their order. A new flow goes before those that have had a turn, so that
//! a sparse flow (a call, a game, a handshake) does not wait for those that fill the link. Flows
//! with the same hash are treated as one. The key of the hash is random and drawn at every start,
//! so that an attacker cannot craft collisions.

mod codel;

mod list;

mod store;

use codel::{Codel, Grace, Patience};
use list::{Links, List};
use recoded_counters::tunnel::{QueueDrop, TunnelCounters};
use recoded_pipeline::edge::class;
use recoded_pipeline::edge::inner::FlowKey;
use recoded_pipeline::params::Nanos;
use std::hash::{BuildHasher, RandomState};
use store::Store;

/// Memory for the packets of one tunnel, shared by all workers: 8192 of usual size, 0.3 s at 300
/// Mbit/s. CoDel keeps the backlog far shorter. The memory is for senders in slow start on a long
/// path, which double their rate every round trip until a signal reaches them: over 540 ms, cubic
/// queues 7000 packets here, and with room for 2048 it lost half its rate for ten seconds.
const PACKETS_MEMORY_BYTES: usize = 16 << 20;

/// Tunnels that each get the full memory. More tunnels share the same total, since they also share
/// the links of the node, whose rate decides how much can wait.
const WHOLE_TUNNELS: usize = 6;

/// Least memory at one worker; with more tunnels than [`WHOLE_TUNNELS`], a sixteenth.
const PACKETS_MEMORY_MIN_BYTES: usize = 4 << 20;

/// Shortest place for a packet. Larger ones would only waste memory, smaller ones take more for
/// bookkeeping than for the packet.
const PLACE_BYTES_MIN: usize = 2048;

/// Flow queues: with a hundred backlogged flows, one in ten shares its queue with another.
const FLOWS: usize = 1024;

/// Bytes of a flow's turn: one packet of a usual link (RFC 8290, section 5.2.4). More makes flows
/// wait longer for each other, less costs turns without a packet.
const QUANTUM_BYTES: i32 = 1514;

/// A full queue drops half the packets of the flow with most of them, and no more than this (RFC
/// 8290, section 4.1.3): finding that flow takes longer than dropping one packet.
const DROP_PACKETS_MAX: usize = 64;

/// Shortest IPv4 header: shorter packets are not marked.
const HEADER_BYTES_MIN: usize = 20;

/// Bytes that the queue of one tunnel allocates at one worker.
pub const fn memory_bytes(workers: usize, tunnels: usize) -> usize {
    let packets = packets_memory_bytes(workers, tunnels);
    packets
        + packets / PLACE_BYTES_MIN * (size_of::<store::PacketRecord>() + size_of::<u32>())
        + FLOWS * (size_of::<Flow>() + size_of::<u16>() + size_of::<u32>())
}

const fn packets_memory_bytes(workers: usize, tunnels: usize) -> usize {
    let of_tunnel = WHOLE_TUNNELS * PACKETS_MEMORY_BYTES / at_least(tunnels, WHOLE_TUNNELS);
    let share = if tunnels > WHOLE_TUNNELS { 16 } else { 1 };
    let least = PACKETS_MEMORY_MIN_BYTES / share;
    at_least(of_tunnel / at_least(workers, 1), least)
}

/// `usize::max`, which is not const.
const fn at_least(bytes: usize, least: usize) -> usize {
    if bytes < least { least } else { bytes }
}

/// The waiting packets of one tunnel at one worker.
pub(crate) struct FairQueue {
    store: Store,
    flows: Box<[Flow]>,
    /// Packets of each flow: a separate array, since it is searched for the largest.
    counts: Box<[u16]>,
    /// Links of flows: each is new, old, or in neither list.
    links: Links,
    /// Flows that have not had a turn since they began.
    new: List,
    /// Flows that take turns.
    old: List,
    hasher: RandomState,
    patience: Patience,
    grace: Grace,
}

/// Packets of flows with the same hash.
#[derive(Copy, Clone, Debug)]
struct Flow {
    packets: List,
    bytes: usize,
    /// Bytes left of its turn.
    deficit: i32,
    is_listed: bool,
    codel: Codel,
}

impl FairQueue {
    /// A queue at one of `workers` for one of `tunnels`, for packets of at most `packet_bytes`.
    pub(crate) fn new(workers: usize, tunnels: usize, packet_bytes: u16) -> FairQueue {
        FairQueue::with(packets_memory_bytes(workers, tunnels), FLOWS, packet_bytes)
    }

    fn with(memory_bytes: usize, flows: usize, packet_bytes: u16) -> FairQueue {
        let flow = Flow {
            packets: List::EMPTY,
            bytes: 0,
            deficit: 0,
            is_listed: false,
            codel: Codel::default(),
        };
        FairQueue {
            store: Store::new(memory_bytes, usize::from(packet_bytes).max(PLACE_BYTES_MIN)),
            flows: vec![flow; flows].into(),
            counts: vec![0; flows].into(),
            links: Links::new(flows),
            new: List::EMPTY,
            old: List::EMPTY,
            hasher: RandomState::new(),
            patience: Patience::with(0),
            grace: Grace::default(),
        }
    }

    /// Sets the round trip of the path, in nanoseconds, 0 if it is not known, and whether a part of
    /// the path is lost.
    #[inline]
    pub(crate) fn follow(&mut self, round_trip: Nanos, lacks_paths: bool, now: Nanos) {
        let is_grace = self.grace.is_on(lacks_paths, now);
        self.patience = if is_grace { Patience::GRACE } else { Patience::with(round_trip) };
    }

    /// Whether no packet is waiting.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.store.held() == 0
    }

    /// Queues a packet read from this queue of the tunnel. Drops others if there is no room.
    pub(crate) fn push(
        &mut self,
        queue: usize,
        packet: &[u8],
        now: Nanos,
        counters: &mut TunnelCounters,
    ) {
        counters.queued_packets += 1;
        if packet.len() > self.store.place_bytes() {
            counters.drop_queued(QueueDrop::Oversize, 1);
            return;
        }
        if self.store.is_full() {
            self.relieve(counters);
        }
        // Linux gives a tunnel at most 256 queues.
        let Some(place) = self.store.put(queue as u16, packet, now) else { return };
        let index = self.hasher.hash_one(FlowKey::of(packet)) as usize % self.flows.len();
        let flow = &mut self.flows[index];
        flow.packets.push(&mut self.store.links, place);
        flow.bytes += packet.len();
        self.counts[index] += 1;
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM_BYTES;
            self.new.push(&mut self.links, index as u32);
        }
    }

    /// The packet whose turn it is, and the queue of the tunnel that it was read from.
    pub(crate) fn pop(
        &mut self,
        now: Nanos,
        counters: &mut TunnelCounters,
    ) -> Option<(usize, &[u8])> {
        let place = loop {
            let (list, is_new) = match self.new.is_empty() {
                true => (&mut self.old, false),
                false => (&mut self.new, true),
            };
            let index = list.first()?;
            if self.flows[index as usize].deficit <= 0 {
                self.flows[index as usize].deficit += QUANTUM_BYTES;
                list.pop(&self.links);
                self.old.push(&mut self.links, index);
                continue;
            }
            if let Some(place) = self.pop_flow(index as usize, now, counters) {
                break place;
            }
            let list = if is_new { &mut self.new } else { &mut self.old };
            list.pop(&self.links);
            if is_new {
                // Otherwise its next packet would make it new again, and it would always go first.
                self.old.push(&mut self.links, index);
            } else {
                self.flows[index as usize].is_listed = false;
            }
        };
        let queue = self.store.place(place).queue;
        Some((queue.into(), self.store.free(place)))
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, counters: &mut TunnelCounters) {
        counters.drop_queued(QueueDrop::Closed, self.store.held() as u64);
        for index in 0..self.flows.len() {
            while let Some(place) = self.take(index) {
                self.store.free(place);
            }
        }
    }

    /// The next packet of a flow that CoDel lets pass.
    fn pop_flow(&mut self, index: usize, now: Nanos, counters: &mut TunnelCounters) -> Option<u32> {
        loop {
            let place = self.take(index)?;
            let flow = &mut self.flows[index];
            let sojourn = now.saturating_sub(self.store.place(place).came_at);
            if flow.codel.signals(&self.patience, sojourn, flow.bytes, now) {
                if !mark(self.store.packet_mut(place)) {
                    counters.drop_queued(QueueDrop::Delay, 1);
                    self.store.free(place);
                    continue;
                }
                counters.queue_marked += 1;
            }
            flow.deficit -= i32::from(self.store.place(place).len);
            return Some(place);
        }
    }

    /// Takes the first packet out of a flow.
    fn take(&mut self, index: usize) -> Option<u32> {
        let flow = &mut self.flows[index];
        let place = flow.packets.pop(&self.store.links)?;
        flow.bytes -= usize::from(self.store.place(place).len);
        self.counts[index] -= 1;
        Some(place)
    }

    /// Drops packets of the flow with the most places: places are the scarce resource, however
    /// little each holds.
    #[cold]
    fn relieve(&mut self, counters: &mut TunnelCounters) {
        let counts = self.counts.iter().enumerate();
        let Some((index, count)) = counts.max_by_key(|(_, count)| **count) else { return };
        let packets = usize::from(*count).div_ceil(2).min(DROP_PACKETS_MAX);
        for _ in 0..packets {
            let Some(place) = self.take(index) else { return };
            self.store.free(place);
            counters.drop_queued(QueueDrop::Full, 1);
        }
    }
}

/// Sets the congestion mark on a packet, if its sender supports ECN.
fn mark(packet: &mut [u8]) -> bool {
    let is_capable = class::is_capable(class::of(packet)) && packet.len() >= HEADER_BYTES_MIN;
    if is_capable {
        class::mark(packet);
    }
    is_capable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::Inner;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A hundredth of an interval of CoDel: its target is five.
    const TICK: Nanos = codel::INTERVAL_NANOS / 100;

    /// Places of a small queue.
    const PLACES: usize = 32;

    fn small() -> FairQueue {
        FairQueue::with(PLACES * PLACE_BYTES_MIN, 64, 1400)
    }

    /// A packet of `flow` with this number in its payload, and ECN bits.
    fn packet(flow: u8, number: u32, len: usize, ecn: u8) -> Vec<u8> {
        let mut payload = vec![0; len.max(4)];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        Inner { class: ecn, ..Inner::udp(flow, &payload) }.bytes()
    }

    /// Flow and number of a packet.
    fn read(packet: &[u8]) -> (u8, u32) {
        (packet[15], u32::from_be_bytes(packet[28..32].try_into().unwrap()))
    }

    /// Flows whose hashes differ.
    fn apart<const N: usize>(queue: &FairQueue) -> [u8; N] {
        let index = |flow: u8| {
            queue.hasher.hash_one(FlowKey::of(&packet(flow, 0, 4, 0))) as usize % queue.flows.len()
        };
        let by_index: BTreeMap<usize, u8> = (0..=255).map(|flow| (index(flow), flow)).collect();
        let mut flows = by_index.into_values();
        std::array::from_fn(|_| flows.next().expect("more hashes than flows asked for"))
    }

    fn dropped(counters: &TunnelCounters) -> u64 {
        counters.queue_dropped.iter().sum()
    }

    /// Runs a flow whose packets wait for `packets` milliseconds: one arrives and one leaves in
    /// each.
    fn standing(packets: u32, millis: u32, ecn: u8) -> (TunnelCounters, Vec<Vec<u8>>) {
        let (mut queue, mut counters) = (small(), TunnelCounters::default());
        let mut popped = Vec::new();
        for time in 0..millis {
            let now = u64::from(time) * TICK;
            // Dropped packets are replaced: the queue keeps its length.
            while queue.store.held() < packets as usize {
                queue.push(0, &packet(1, time, 1000, ecn), now, &mut counters);
            }
            popped.extend(queue.pop(now, &mut counters).map(|(_, packet)| packet.to_vec()));
        }
        (counters, popped)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { flow: u8, len: usize, ecn: u8 },
        Pop,
        Wait(Nanos),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let push = (0u8..6, 4usize..1372, 0u8..4);
        let step = prop_oneof![
            3 => push.prop_map(|(flow, len, ecn)| Step::Push { flow, len, ecn }),
            2 => Just(Step::Pop),
            1 => (0..60 * TICK).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        #[test]
        fn flows_keep_their_order_and_every_packet_leaves_waits_or_is_counted(steps in steps()) {
            let (mut queue, mut counters) = (small(), TunnelCounters::default());
            let (mut now, mut popped) = (0, 0);
            let mut last = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push { flow, len, ecn } => {
                        let packet = packet(flow, number as u32, len, ecn);
                        let before = (queue.counts.to_vec(), queue.store.is_full());
                        queue.push(flow.into(), &packet, now, &mut counters);
                        // Only a full queue drops, and only from the flow with most packets.
                        let most = before.0.iter().max().copied();
                        for (before_push, count) in before.0.iter().zip(&queue.counts) {
                            prop_assert!(count >= before_push || before.1 && Some(*before_push) == most);
                        }
                    }
                    Step::Pop => {
                        let waits = !queue.is_empty();
                        let Some((of, packet)) = queue.pop(now, &mut counters) else {
                            prop_assert!(!waits, "a flow is never dropped to its last packet");
                            continue;
                        };
                        let (flow, number) = read(packet);
                        prop_assert_eq!(of, usize::from(flow));
                        prop_assert!(last.insert(flow, number).is_none_or(|before| before < number));
                        popped += 1;
                    }
                    Step::Wait(nanos) => now += nanos,
                }
                let held = queue.store.held();
                prop_assert!(held <= PLACES);
                prop_assert_eq!(counters.queued_packets, popped + dropped(&counters) + held as u64);
                prop_assert_eq!(queue.counts.iter().map(|count| usize::from(*count)).sum::<usize>(), held);
            }
            let held = queue.store.held() as u64;
            queue.clear(&mut counters);
            prop_assert_eq!(counters.queue_dropped[QueueDrop::Closed as usize], held);
            prop_assert!(queue.is_empty() && queue.pop(now, &mut counters).is_none());
            prop_assert!(queue.flows.iter().all(|flow| flow.bytes == 0));
        }

        #[test]
        fn flows_that_wait_get_equal_bytes_within_a_turn_and_a_packet(
            lens in prop::collection::vec(4usize..1372, 2),
        ) {
            let (mut queue, mut counters) = (small(), TunnelCounters::default());
            let flows: [u8; 2] = apart(&queue);
            for number in 0..14 {
                for (flow, len) in flows.iter().zip(&lens) {
                    queue.push(0, &packet(*flow, number, *len, 0), 0, &mut counters);
                }
            }
            let (mut bytes, mut left) = ([0usize; 2], [14; 2]);
            let longest = 28 + lens.iter().max().unwrap();
            while left.iter().all(|left| *left > 0) {
                let (_, packet) = queue.pop(0, &mut counters).unwrap();
                let of = usize::from(read(packet).0 == flows[1]);
                bytes[of] += packet.len();
                left[of] -= 1;
                prop_assert!(bytes[0].abs_diff(bytes[1]) <= QUANTUM_BYTES as usize + longest);
            }
        }

        #[test]
        fn packets_of_any_bytes_pass_or_are_counted(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 0..80),
            wait in 0..200 * TICK,
        ) {
            let (mut queue, mut counters) = (small(), TunnelCounters::default());
            let mut popped = 0;
            for (number, packet) in packets.iter().enumerate() {
                let now = number as u64 * wait;
                queue.push(0, packet, now, &mut counters);
                if number % 3 == 0 {
                    popped += u64::from(queue.pop(now, &mut counters).is_some());
                }
            }
            let held = queue.store.held() as u64;
            prop_assert_eq!(counters.queued_packets, popped + dropped(&counters) + held);
        }
    }

    #[test]
    fn sparse_flow_goes_first_and_one_that_always_comes_back_starves_nobody() {
        let (mut queue, mut counters) = (small(), TunnelCounters::default());
        let [bulk, sparse] = apart(&queue);
        for number in 0..20 {
            queue.push(0, &packet(bulk, number, 1300, 0), 0, &mut counters);
        }
        assert_eq!(read(queue.pop(0, &mut counters).unwrap().1), (bulk, 0));
        queue.push(0, &packet(sparse, 0, 100, 0), 0, &mut counters);
        queue.pop(0, &mut counters);
        queue.push(0, &packet(sparse, 1, 100, 0), 0, &mut counters);
        let mut bulk_packets = 0;
        for number in 2..20 {
            let (flow, _) = read(queue.pop(0, &mut counters).unwrap().1);
            bulk_packets += u32::from(flow == bulk);
            queue.push(0, &packet(sparse, number, 1300, 0), 0, &mut counters);
        }
        assert!((7..=11).contains(&bulk_packets), "{bulk_packets} of 18");

        let (mut queue, mut counters) = (small(), TunnelCounters::default());
        let [bulk, sparse] = apart(&queue);
        for number in 0..20 {
            queue.push(0, &packet(bulk, number, 1300, 0), 0, &mut counters);
        }
        // Two packets are its first turn, after which it is an old flow.
        (0..3).for_each(|_| assert!(queue.pop(0, &mut counters).is_some()));
        queue.push(0, &packet(sparse, 0, 100, 0), 0, &mut counters);
        assert_eq!(read(queue.pop(0, &mut counters).unwrap().1), (sparse, 0));
    }

    #[test]
    fn long_wait_is_dropped_after_an_interval_and_marked_where_the_sender_listens() {
        let (counters, popped) = standing(20, 105, 0);
        assert_eq!((dropped(&counters), popped.len()), (0, 105), "above the target since tick 5");
        let (counters, popped) = standing(20, 1000, 0);
        let drops = counters.queue_dropped[QueueDrop::Delay as usize];
        assert!(drops >= 10, "{drops}");
        assert_eq!((drops, counters.queue_marked), (dropped(&counters), 0));
        assert_eq!(popped.len(), 1000);
        let (counters, popped) = standing(20, 1000, 2);
        assert!(counters.queue_marked >= 10);
        assert_eq!(dropped(&counters), 0);
        let marked = popped.iter().filter(|packet| packet[1] == 3).count();
        assert_eq!(marked as u64, counters.queue_marked);
        let sum = |packet: &Vec<u8>| crate::checksum::fold(crate::checksum::sum(&packet[..20]));
        assert!(popped.iter().all(|packet| sum(packet) == 0xffff));
    }

    #[test]
    fn short_wait_is_left_alone() {
        let (counters, _) = standing(4, 2000, 0);
        assert_eq!((dropped(&counters), counters.queue_marked), (0, 0));
    }

    #[test]
    fn full_queue_drops_of_the_flow_with_most_packets_however_short_they_are() {
        let (mut queue, mut counters) = (small(), TunnelCounters::default());
        let [bulk, flood] = apart(&queue);
        for number in 0..8 {
            queue.push(0, &packet(bulk, number, 1300, 0), 0, &mut counters);
        }
        for number in 0..1000 {
            queue.push(0, &packet(flood, number, 4, 0), 0, &mut counters);
        }
        let held = queue.store.held();
        let full = counters.queue_dropped[QueueDrop::Full as usize];
        assert_eq!(full, 1008 - held as u64);
        let mut popped = Vec::new();
        while let Some((_, packet)) = queue.pop(0, &mut counters) {
            popped.push(read(packet));
        }
        let of_bulk = popped.iter().filter(|(flow, _)| *flow == bulk).map(|(_, number)| *number);
        assert!(of_bulk.eq(0..8), "{popped:?}");
        assert!(popped.contains(&(flood, 999)), "the oldest went");
    }

    #[test]
    fn packet_longer_than_a_place_is_counted() {
        let (mut queue, mut counters) = (small(), TunnelCounters::default());
        queue.push(0, &[0x45; PLACE_BYTES_MIN + 1], 0, &mut counters);
        assert_eq!(counters.queue_dropped[QueueDrop::Oversize as usize], 1);
        assert!(queue.is_empty());
        let mut queue = FairQueue::new(1, 1, u16::MAX);
        queue.push(7, &[0x45; 65_535], 0, &mut counters);
        assert_eq!(
            queue.pop(0, &mut counters).map(|(queue, packet)| (queue, packet.len())),
            Some((7, 65_535))
        );
    }

    #[test]
    fn memory_is_what_was_said_and_taken_at_start() {
        let mut queue = None;
        for (workers, tunnels) in [(64, 1), (64, 200), (1, 200), (1, 1)] {
            let new = || queue = Some(FairQueue::new(workers, tunnels, 1400));
            let taken = allocation_counter::measure(new);
            assert!(taken.bytes_total <= memory_bytes(workers, tunnels) as u64, "{taken:?}");
        }
        // A few tunnels each get all of it, more share the same total.
        let all = |tunnels: usize| tunnels * memory_bytes(1, tunnels);
        assert_eq!(memory_bytes(1, 1), memory_bytes(1, WHOLE_TUNNELS));
        assert!(all(200) < all(WHOLE_TUNNELS) + 200 * FLOWS * size_of::<Flow>() * 2);
        let (mut queue, mut counters) = (queue.unwrap(), TunnelCounters::default());
        let packets: Vec<_> = (0..50).map(|flow| packet(flow, 0, 1300, 0)).collect();
        let taken = allocation_counter::measure(|| {
            for number in 0..20_000u64 {
                let packet = &packets[number as usize % 50];
                queue.push(0, packet, number * TICK, &mut counters);
                if number % 5 == 0 {
                    queue.pop(number * TICK, &mut counters);
                }
            }
        });
        assert!(dropped(&counters) > 0);
        assert_eq!(taken.count_total, 0, "{taken:?}");
    }
}
