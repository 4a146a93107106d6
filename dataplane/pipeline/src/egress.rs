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
}
