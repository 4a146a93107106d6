//! Packets that a node sends at once, as in one call of its worker.

use super::wires::{DOWN, UP, Wire};
use super::{KEEPALIVE_BYTES, Line, PeerId, What};
use recoded_pipeline::recorder::Sent;
use recoded_wire::frames::Frames;
use recoded_wire::header::Header;

impl Line {
    /// Sends packets to a neighbour at once.
    pub(super) fn leave(&mut self, index: usize, peer: PeerId, sent: &[Sent]) {
        let Wire { hop, is_up, to: node, from } = self.wires[&(index, peer)];
        let mut payloads = Vec::with_capacity(sent.len());
        for Sent { span, .. } in sent {
            let mut payload = self.nodes[index].frames.bytes(*span).to_vec();
            self.nodes[index].frames.release(span.frame);
            if let Some(tamper) = self.tamper.as_mut().filter(|_| !is_up) {
                tamper(index, &mut payload);
            }
            if from == UP && node == 1 && payload.len() > KEEPALIVE_BYTES {
                self.newest.clone_from(&payload);
            }
            if from == DOWN {
                let header = Header::parse(&payload).expect("nodes write headers");
                self.newest_back[node] = header.link_sequence;
            }
            if let Some(tamper) = self.tamper_back.as_mut().filter(|_| is_up) {
                tamper(index, &mut payload);
            }
            payloads.push(payload);
        }
        let channel = if is_up { &mut self.up[hop] } else { &mut self.down[hop] };
        let bytes: Vec<usize> = payloads.iter().map(Vec::len).collect();
        let arrive = channel.send_all(&bytes, self.now);
        for (payload, arrive) in payloads.into_iter().zip(arrive) {
            for at in arrive {
                self.push(at, What::Arrive { node, peer: from, payload: payload.clone() });
            }
        }
    }
}
