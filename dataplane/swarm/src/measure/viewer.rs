//! A receiver of a load test that counts blocks and follows the content as a player does. It does
//! not decode, so that thousands and the servers fit on one computer.

use crate::manifest::{ContentId, Layout};
use crate::wire::{GRANTS_MAX, Grant, Hello, Message, Request};

/// How often a hello or a request is repeated.
const REPEAT_NANOS: u64 = 500_000_000;

/// Blocks of one segment.
#[derive(Copy, Clone, Default)]
struct Arrivals {
    segment: u32,
    received: u32,
    /// Blocks below this number have arrived or are lost.
    next: u32,
}

/// A receiver.
pub(super) struct Viewer {
    id: ContentId,
    layout: Layout,
    public_key: [u8; 32],
    rate_kbit: u32,
    cookie: [u8; 16],
    session: Option<u64>,
    sequence: u32,
    sent_at: Option<u64>,
    /// The current segment and the next one.
    arrivals: [Arrivals; 2],
    /// Bytes of blocks.
    pub bytes: u64,
}

impl Viewer {
    pub(super) fn new(id: ContentId, layout: Layout, number: u32, rate_kbit: u32) -> Self {
        let mut public_key = [0; 32];
        public_key[..4].copy_from_slice(&number.to_be_bytes());
        let first = number % layout.segments();
        let at = |segment| Arrivals { segment, received: 0, next: 0 };
        Self {
            id,
            layout,
            public_key,
            rate_kbit,
            cookie: [0; 16],
            session: None,
            sequence: 0,
            sent_at: None,
            arrivals: [at(first), at((first + 1) % layout.segments())],
            bytes: 0,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Processes a datagram. Whether a message is due at once.
    pub(super) fn handle(&mut self, datagram: &[u8]) {
        match Message::parse(datagram) {
            Ok(Message::Challenge { cookie, .. }) => {
                (self.cookie, self.sent_at) = (cookie, None);
            }
            Ok(Message::Welcome(welcome)) => {
                (self.session, self.sent_at) = (Some(welcome.session), None);
            }
            Ok(Message::Block(block)) if Some(block.session) == self.session => {
                self.bytes += block.payload.len() as u64;
                let known = self.arrivals.iter_mut().find(|a| a.segment == block.segment);
                let Some(arrivals) = known else { return };
                arrivals.received += 1;
                let passed = (block.number + 1).saturating_sub(arrivals.next);
                arrivals.next += passed;
                if passed > 1 {
                    self.sent_at = None;
                }
                self.advance();
            }
            _ => {}
        }
    }

    fn advance(&mut self) {
        let [current, next] = self.arrivals;
        if current.received as usize >= self.layout.blocks_of(current.segment) {
            let segment = (next.segment + 1) % self.layout.segments();
            self.arrivals = [next, Arrivals { segment, received: 0, next: 0 }];
            self.sent_at = None;
        }
    }

    /// The message that is due.
    pub(super) fn poll(&mut self, now: u64) -> Option<Message<'static>> {
        if self.sent_at.is_some_and(|at| now.saturating_sub(at) < REPEAT_NANOS) {
            return None;
        }
        self.sent_at = Some(now);
        let Some(session) = self.session else {
            let Self { cookie, public_key, .. } = *self;
            return Some(Message::Hello(Hello {
                content: self.id.0,
                nonce: 1,
                cookie,
                public_key,
            }));
        };
        self.sequence += 1;
        let mut grants = [Grant::default(); GRANTS_MAX];
        for (grant, arrivals) in grants.iter_mut().zip(&self.arrivals) {
            let blocks = self.layout.blocks_of(arrivals.segment) as u32;
            let total = arrivals.next + blocks.saturating_sub(arrivals.received);
            *grant = Grant { segment: arrivals.segment, total };
        }
        let Self { sequence, rate_kbit, .. } = *self;
        Some(Message::Request(Request { session, sequence, rate_kbit, grants, count: 2 }))
    }
}
