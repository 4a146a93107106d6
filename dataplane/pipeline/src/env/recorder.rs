//! The double of [`Egress`] for tests, simulators and benchmarks: it records the outputs of a
//! pipeline, and answers requests as its fields say.

use crate::config::params::{PeerId, ShardId, TunnelId};
use crate::env::egress::{
    Answer, Egress, HandOver, Keys, NoKeys, Origin, Outer, Product, ProductInputs, Ticket,
};
use crate::env::stage_memory::{OpenRequest, Rent};
use crate::plan::PlanRequest;
use recoded_wire::frames::{Frames, Span};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Outputs of a pipeline, in order, and its environment. Release the frames of `sent`.
pub struct Recorder<K = NoKeys> {
    /// Packets handed over for transmission.
    pub sent: Vec<Sent>,
    /// Number of delivered packets.
    pub delivered_count: u64,
    /// Copies of them.
    pub delivered: Vec<Vec<u8>>,
    /// Whether they are copied.
    pub copies: bool,
    /// Keys of sealed and tagged flows.
    pub keys: Option<K>,
    /// Whether hops have keys.
    pub authenticated: bool,
    /// How often keys with a neighbour were distrusted.
    pub distrusted: usize,
    /// Requests for stages.
    pub stages: Requests<OpenRequest>,
    /// Requests for plans.
    pub plans: Requests<PlanRequest>,
    /// Bytes of stages that a source keeps, and their limit.
    pub budget: (Arc<AtomicUsize>, usize),
    /// Shards that another worker has.
    pub elsewhere: Vec<ShardId>,
    /// Packets for that worker: shard, sender, and bytes.
    pub handed_over: Vec<(ShardId, PeerId, usize)>,
    /// Most packets that it takes.
    pub handed_over_max: usize,
    /// Products offered to an accelerator; `None` if there is no accelerator.
    pub products: Option<Vec<Offered>>,
}

/// A packet handed over for transmission.
#[derive(Copy, Clone, Debug)]
pub struct Sent {
    /// Its next hop.
    pub hop: PeerId,
    /// The UDP payload.
    pub span: Span,
    /// Outer header fields.
    pub outer: Outer,
}

/// The answer to requests of one kind, and those that wait for a reply.
#[derive(Debug)]
pub struct Requests<T> {
    /// The answer to each.
    pub answer: Answer,
    /// Those answered with [`Answer::Elsewhere`].
    pub asked: Vec<T>,
}

/// A product offered to an accelerator, with its inputs.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Its name.
    pub ticket: Ticket,
    /// Its shape.
    pub product: Product,
    /// Rows of coefficients.
    pub coefficients: Vec<Vec<u8>>,
    /// Source symbols.
    pub sources: Vec<Vec<u8>>,
}

impl<K> Default for Recorder<K> {
    fn default() -> Self {
        Self {
            sent: Vec::new(),
            delivered_count: 0,
            delivered: Vec::new(),
            copies: true,
            keys: None,
            authenticated: false,
            distrusted: 0,
            stages: Requests::here(),
            plans: Requests::here(),
            budget: (Arc::default(), usize::MAX),
            elsewhere: Vec::new(),
            handed_over: Vec::new(),
            handed_over_max: usize::MAX,
            products: None,
        }
    }
}

impl<K> Recorder<K> {
    /// A recorder that counts delivered packets only, and allocates nothing while at most `packets`
    /// wait in `sent`.
    pub fn counting(packets: usize, keys: Option<K>) -> Self {
        Self { sent: Vec::with_capacity(packets), copies: false, keys, ..Self::default() }
    }

    /// A recorder with these keys.
    pub fn with_keys(keys: K) -> Self {
        Self { keys: Some(keys), ..Self::default() }
    }

    /// Releases the frames of sent packets.
    pub fn release(&mut self, frames: &mut impl Frames) {
        self.sent.drain(..).for_each(|sent| frames.release(sent.span.frame));
    }

    /// Hop and UDP payload of each packet sent since the last call; releases their frames.
    pub fn take_sent(&mut self, frames: &mut impl Frames) -> Vec<(PeerId, Vec<u8>)> {
        let packets = self.sent.iter().map(|sent| (sent.hop, frames.bytes(sent.span).to_vec()));
        let packets = packets.collect();
        self.release(frames);
        packets
    }
}

impl<T> Requests<T> {
    /// The pipeline computes the reply itself.
    pub fn here() -> Self {
        Self { answer: Answer::Here, asked: Vec::new() }
    }

    /// Replies come later.
    pub fn elsewhere() -> Self {
        Self { answer: Answer::Elsewhere, asked: Vec::with_capacity(4) }
    }
}

impl<T: Clone> Requests<T> {
    fn ask(&mut self, request: &T) -> Answer {
        if self.answer == Answer::Elsewhere {
            self.asked.push(request.clone());
        }
        self.answer
    }
}

impl<K: Keys> Egress for Recorder<K> {
    type Keys = K;

    fn keys(&mut self) -> Option<&mut K> {
        self.keys.as_mut()
    }

    fn transmit(&mut self, hop: PeerId, span: Span, outer: Outer) {
        self.sent.push(Sent { hop, span, outer });
    }

    fn deliver(&mut self, _tunnel: TunnelId, packet: &[u8]) {
        self.delivered_count += 1;
        if self.copies {
            self.delivered.push(packet.to_vec());
        }
    }

    fn is_authenticated(&self, _peer: PeerId) -> bool {
        self.authenticated
    }

    fn distrust(&mut self, _peer: PeerId) {
        self.distrusted += 1;
    }

    fn offload(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        let Some(products) = &mut self.products else { return false };
        let Product { rows, columns, row_bytes } = product;
        // Not zeros, so that what is left out shows.
        let (coefficients, sources) = (vec![0xEE; columns], vec![0xEE; row_bytes]);
        let (coefficients, sources) = (vec![coefficients; rows], vec![sources; columns]);
        let mut offered = Offered { ticket, product, coefficients, sources };
        fill(&mut offered);
        products.push(offered);
        true
    }

    fn open(&mut self, request: &OpenRequest) -> Answer {
        self.stages.ask(request)
    }

    fn keep(&mut self, bytes: usize) -> Option<Rent> {
        Rent::take(&self.budget.0, bytes, self.budget.1)
    }

    fn hand_over(&mut self, shard: ShardId, origin: Origin, payload: &[u8]) -> HandOver {
        if !self.elsewhere.contains(&shard) {
            return HandOver::Unowned;
        }
        if self.handed_over.len() >= self.handed_over_max {
            return HandOver::Full;
        }
        self.handed_over.push((shard, origin.peer, payload.len()));
        HandOver::Taken
    }

    fn plan(&mut self, request: &PlanRequest) -> Answer {
        self.plans.ask(request)
    }
}

impl ProductInputs for Offered {
    fn coefficients(&mut self, row: usize) -> &mut [u8] {
        &mut self.coefficients[row]
    }

    fn source(&mut self, column: usize) -> &mut [u8] {
        &mut self.sources[column]
    }
}
