//! Results of a call to a node.

use recoded_pipeline::open::OpenRequest;
use recoded_pipeline::params::PeerId;

/// A packet sent.
pub(crate) struct Sent {
    pub hop: PeerId,
    pub source_port: u16,
    pub payload: Vec<u8>,
}

/// A packet handed over to the worker that owns its shard.
pub(crate) struct HandedOver {
    pub worker: usize,
    pub peer: PeerId,
    pub payload: Vec<u8>,
}

/// Results of a call to a node: packets to the network, to the tunnel and to other workers, and
/// stage requests of a worker.
#[derive(Default)]
pub(crate) struct Results {
    pub sent: Vec<Sent>,
    pub delivered: Vec<Vec<u8>>,
    pub handed_over: Vec<HandedOver>,
    pub asked: Vec<(usize, OpenRequest)>,
}
