//! A worker's reading side of one tunnel: packets one at a time, however many a read returned.
//!
//! A worker reads several queues in turn, one read each. Queues of one tunnel carry different flows
//! (Linux chooses by a hash, and sends replies to the queue that the flow was written to), so the
//! order within a flow holds.

use crate::segments::{READ_BYTES_MAX, Segments};
use crate::tunnel::{self, Offload, Tunnel};

/// Packets that one worker has read from one tunnel and not handed out yet.
pub(crate) struct Intake {
    lanes: Vec<Lane>,
    /// The lane whose turn it is.
    turn: usize,
}

/// One queue.
struct Lane {
    queue: usize,
    buffer: Box<[u8]>,
    segments: Segments,
}

/// The result of taking a packet.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Taken<'a> {
    /// An IP packet, and the queue it was read from.
    Packet(usize, &'a [u8]),
    /// No packet is waiting.
    Empty,
    /// Linux refused, or returned inconsistent data.
    Failed,
}

impl Intake {
    /// An intake for these queues.
    pub(crate) fn new(queues: impl Iterator<Item = usize>) -> Intake {
        let lane = |queue| Lane {
            queue,
            buffer: vec![0; READ_BYTES_MAX].into(),
            segments: Segments::new(),
        };
        Intake { lanes: queues.map(lane).collect(), turn: 0 }
    }

    /// Its queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().map(|lane| lane.queue)
    }

    /// Whether packets wait here that a poll of the tunnel would not show.
    pub(crate) fn is_pending(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.segments.is_empty())
    }

    /// The next packet: from the last read, or from a new one if it `reads`.
    #[inline]
    pub(crate) fn take(&mut self, tunnel: &Tunnel, reads: bool) -> Taken<'_> {
        for _ in 0..self.lanes.len() {
            let lane = &mut self.lanes[self.turn];
            if lane.segments.is_empty() {
                let read = if reads { lane.read(tunnel) } else { Ok(false) };
                match read {
                    Ok(true) => {}
                    Ok(false) => {
                        self.pass();
                        continue;
                    }
                    Err(Failed) => {
                        self.pass();
                        return Taken::Failed;
                    }
                }
            }
            let lane = &mut self.lanes[self.turn];
            let Some(range) = lane.segments.next(&mut lane.buffer) else { continue };
            let of = self.turn;
            if lane.segments.is_empty() {
                self.pass();
            }
            let Lane { queue, buffer, .. } = &self.lanes[of];
            return Taken::Packet(*queue, &buffer[range]);
        }
        Taken::Empty
    }

    /// Discards packets read but not handed out. Returns their number and bytes.
    pub(crate) fn discard(&mut self) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        for Lane { segments, buffer, .. } in &mut self.lanes {
            while let Some(range) = segments.next(buffer) {
                packets += 1;
                bytes += range.len() as u64;
            }
        }
        (packets, bytes)
    }

    fn pass(&mut self) {
        self.turn = (self.turn + 1) % self.lanes.len();
    }
}

/// Neither a packet nor an empty queue.
struct Failed;

impl Lane {
    /// Reads once. False if nothing is waiting.
    fn read(&mut self, tunnel: &Tunnel) -> Result<bool, Failed> {
        let len = match tunnel.read(self.queue, &mut self.buffer) {
            tunnel::Read::Bytes(len) => len,
            tunnel::Read::Empty => return Ok(false),
            tunnel::Read::Failed | tunnel::Read::Gone => return Err(Failed),
        };
        if tunnel.offload() == Offload::None {
            self.segments.whole(0..len);
            return Ok(true);
        }
        self.segments.start(&mut self.buffer[..len]).map_err(|_| Failed)?;
        Ok(true)
    }
}
