//! Where the pipeline's results go. The runtime implements this over rings and a TUN interface, the
//! simulator over queues.

use crate::params::{HopId, TunnelId};
use recoded_wire::frames::Span;

/// Receives what the pipeline decided. Nothing here may block.
pub trait Egress {
    /// Sends the UDP payload in `span` to a next hop, from source port `source_port`.
    ///
    /// Takes over one reference to the frame, also when it must drop the packet, which it counts.
    /// The frame's bytes in front of the span may be overwritten (`HEADROOM_BYTES` of them);
    /// the span itself may not.
    fn transmit(&mut self, hop: HopId, span: Span, source_port: u16);

    /// Hands a decoded IP packet to a tunnel.
    fn deliver(&mut self, tunnel: TunnelId, packet: &[u8]);

    /// Whether an accelerator would now take a product of `columns` rows of `row_bytes` bytes that makes
    /// `rows` of them.
    fn wants(&self, rows: usize, columns: usize, row_bytes: usize) -> bool {
        let _ = (rows, columns, row_bytes);
        false
    }

    /// Offers a product to an accelerator, which takes a copy. When it does, somebody must say what came
    /// of it: [`Pipeline::solved`](crate::Pipeline::solved).
    fn offload(&mut self, product: Product<'_>) -> bool {
        let _ = product;
        false
    }
}

/// Names a product that is computed elsewhere.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    /// The flow it is for.
    pub flow: u32,
    /// The generation it is for.
    pub generation: u32,
    /// Tells it from others for the same generation.
    pub serial: u32,
}

/// A product of coefficients and symbols.
#[derive(Copy, Clone, Debug)]
pub struct Product<'a> {
    /// Its name.
    pub ticket: Ticket,
    /// A row of coefficients for each symbol to be computed, as many in each as there are sources.
    pub coefficients: &'a [u8],
    /// The symbols to be combined, all of one length.
    pub sources: &'a [&'a [u8]],
}
