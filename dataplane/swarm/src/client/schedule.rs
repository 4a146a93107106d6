//! Decides which peer sends which blocks: how segments are verified, who issues checks, grants.

use crate::checks::Checks;
use crate::client::decoder::{Decoder, Trust};
use crate::client::peer::Peer;
use crate::client::{Client, MILLI, PeerState};
use crate::wire::Message;

/// Requests for the checks of a segment after which a source counts as silent.
const CHECKS_TRIES: u32 = 8;

/// Hellos without an answer after which no source is expected at an address.
const SOURCE_TRIES: u32 = 5;

/// Without a source, a segment is requested from another peer after this long without an innovative
/// block. That discards its blocks, so a pause of 250 ms is no reason; at twice, a peer that has
/// only a part of the segment delays it for longer.
const LEAVE_NANOS: u64 = 2_000 * MILLI;

/// A peer whose rate is lower by this factor counts as much slower. At half, two peers of similar
/// rate are granted the same blocks; at twice, a peer with a quarter of the rate delays segments.
const SLOWER: u32 = 4;

/// The peer to request checks from. One that has sent valid ones is the source. Among those that
/// only claim to be, a liar gets no more than its share of the tries.
fn claimant(peers: &[Peer], tries: u32) -> Option<usize> {
    let claimants = || (0..peers.len()).filter(|&n| peers[n].is_open() && peers[n].is_source);
    let proven = claimants().find(|&number| peers[number].has_checked);
    proven.or_else(|| claimants().nth(tries as usize % claimants().count().max(1)))
}

/// The peer that serves a segment without checks. It stays the same while it has innovative blocks.
fn choose(decoder: &mut Decoder, now: u64, peers: &[Peer], is_eligible: &[bool], start: usize) {
    let Trust::Alone(alone) = &mut decoder.trust else { return };
    let chosen = *alone;
    let is_without_gain = now.saturating_sub(decoder.grown_at) > LEAVE_NANOS;
    let has_none = decoder.rank() == 0;
    let is_to_leave = |number: usize| {
        let is_idle = !is_eligible[number] && (is_without_gain || has_none);
        !peers[number].is_open() || is_idle
    };
    if chosen.is_some_and(|number| !is_to_leave(number)) {
        return;
    }
    let count = peers.len();
    let mut candidates = (0..count).map(|offset| (start % count + offset) % count);
    if let Some(number) = candidates.find(|&number| is_eligible[number]) {
        decoder.trust = Trust::Alone(Some(number));
        decoder.grown_at = now;
        decoder.restart();
    }
}

/// Pending blocks of a segment. Late ones of a peer that is much slower than another one do not
/// count: the segment would wait for them. That peer is granted no more of the segment meanwhile.
fn outstanding(now: u64, segment: u32, peers: &[Peer], may_serve: &mut [bool]) -> u32 {
    let serving = peers.iter().zip(&*may_serve).filter(|&(_, &may)| may);
    let fastest = serving.map(|(peer, _)| peer.delivered()).max().unwrap_or(0);
    let mut sum = 0;
    for (peer, may) in peers.iter().zip(may_serve) {
        let pending = peer.pending(now, segment);
        if pending.is_late && peer.delivered() < fastest / SLOWER {
            *may = false;
        } else {
            sum += pending.blocks;
        }
    }
    sum
}

impl Client {
    /// Most kbit/s of each peer: an even share of the limit, and what slower peers leave of theirs.
    pub(super) fn shares(&mut self, now: u64) -> Vec<u32> {
        let limit_kbit = self.limits.rate_kbit;
        let open = self.peers.iter().filter(|peer| peer.is_open()).count() as u32;
        let even_kbit = limit_kbit / open.max(1);
        let layout = self.store.as_ref().map(|store| *store.layout());
        let block_bits = layout.map_or(0, |layout| u64::from(layout.block_bytes) * 8);
        let used: Vec<u32> = (self.peers.iter_mut())
            .map(|peer| match peer.blocks_per_second(now) {
                _ if !peer.is_open() => 0,
                None => even_kbit,
                Some(blocks) => u64::from(even_kbit).min(blocks * block_bits / 1000) as u32,
            })
            .collect();
        let sum: u32 = used.iter().sum();
        used.iter().map(|used| even_kbit.max(limit_kbit.saturating_sub(sum - used))).collect()
    }

    /// Decides how segments are verified, and requests checks.
    pub(super) fn request_checks(&mut self, now: u64, send: &mut impl FnMut(usize, &Message<'_>)) {
        let (Some(store), Some(key)) = (&self.store, &self.shared) else { return };
        let block_bytes = store.layout().block_bytes as usize;
        let unanswered_max = CHECKS_TRIES * self.decoders.len() as u32;
        for decoder in &mut self.decoders {
            let source = claimant(&self.peers, decoder.checks_tries);
            if let (Trust::Undecided, Some(_)) = (&decoder.trust, source) {
                let checks = Checks::new(key, decoder.segment, decoder.blocks(), block_bytes);
                decoder.trust = Trust::Checked(checks);
            }
            let part = match &decoder.trust {
                Trust::Checked(checks) => checks.missing(),
                Trust::Undecided => Some(0),
                Trust::Alone(_) => None,
            };
            let Some(part) = part else { continue };
            let Some(source) = source else {
                let is_expected = |peer: &Peer| {
                    peer.state == PeerState::Connecting && peer.hello_tries < SOURCE_TRIES
                };
                if !self.peers.iter().any(is_expected) {
                    decoder.trust = Trust::Alone(None);
                }
                continue;
            };
            let peer = &mut self.peers[source];
            let wait = 2 * peer.rtt + 150 * MILLI;
            if decoder.checks_at.is_some_and(|at| now.saturating_sub(at) < wait) {
                continue;
            }
            decoder.checks_at = Some(now);
            decoder.checks_tries += 1;
            peer.checks_unanswered += 1;
            if peer.checks_unanswered > unanswered_max {
                // It claims to be the source, or has gone.
                peer.is_source = false;
                continue;
            }
            let (session, segment) = (peer.session, decoder.segment);
            send(source, &Message::ChecksRequest { session, segment, part });
        }
    }

    /// Grants as many blocks as degrees of freedom are missing, shared among the peers. Each has
    /// only as many pending as it delivers; the rest is granted as blocks arrive.
    pub(super) fn grant(&mut self, now: u64) {
        let count = self.peers.len();
        for decoder in &mut self.decoders {
            let segment = decoder.segment;
            let is_eligible: Vec<bool> =
                self.peers.iter().map(|peer| peer.is_eligible(now, segment)).collect();
            choose(decoder, now, &self.peers, &is_eligible, self.random.number() as usize);
            let mut may_serve = match &decoder.trust {
                Trust::Checked(checks) if checks.missing().is_none() => is_eligible,
                Trust::Alone(alone) => {
                    (0..count).map(|n| is_eligible[n] && *alone == Some(n)).collect()
                }
                _ => continue,
            };
            let outstanding = outstanding(now, segment, &self.peers, &mut may_serve);
            let mut deficit = (decoder.missing() as u32).saturating_sub(outstanding);
            let start = self.random.number() as usize % count.max(1);
            let mut servers = may_serve.iter().filter(|&&may| may).count() as u32;
            for offset in 0..count {
                let number = (start + offset) % count;
                if deficit == 0 || !std::mem::take(&mut may_serve[number]) {
                    continue;
                }
                let share = deficit.div_ceil(servers).min(self.peers[number].allowance(now));
                if share > 0 {
                    self.peers[number].raise(now, segment, share);
                }
                deficit -= share;
                servers -= 1;
            }
        }
    }
}
