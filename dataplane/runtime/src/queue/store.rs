//! Memory for waiting packets: places of equal size, allocated at start. The place freed last is
//! used first, so that a short queue stays in the cache and Linux backs only queues that were long
//! with pages.

use super::list::{Links, List};
use recoded_pipeline::params::Nanos;

/// Packets in places.
pub(super) struct Store {
    bytes: Box<[u8]>,
    place_bytes: usize,
    places: Box<[PacketRecord]>,
    /// Links of places: each is free or in the list of one flow.
    pub(super) links: Links,
    free: List,
    held: usize,
}

/// The record of a waiting packet.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct PacketRecord {
    pub(super) len: u16,
    /// Queue of the tunnel that it was read from.
    pub(super) queue: u16,
    pub(super) came_at: Nanos,
}

impl Store {
    /// `bytes` in places that each hold a packet of `place_bytes`.
    pub(super) fn new(bytes: usize, place_bytes: usize) -> Store {
        let count = bytes / place_bytes;
        let mut links = Links::new(count);
        let mut free = List::EMPTY;
        // Fewer than 2^32: a place has at least some hundred bytes.
        (0..count as u32).for_each(|place| free.push(&mut links, place));
        Store {
            bytes: vec![0; count * place_bytes].into(),
            place_bytes,
            places: vec![PacketRecord::default(); count].into(),
            links,
            free,
            held: 0,
        }
    }

    /// Longest packet that fits.
    pub(super) fn place_bytes(&self) -> usize {
        self.place_bytes
    }

    /// Waiting packets.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Copies a packet of at most [`Store::place_bytes`] into a free place; `None` if there is
    /// none.
    pub(super) fn put(&mut self, queue: u16, packet: &[u8], came_at: Nanos) -> Option<u32> {
        let place = self.free.pop(&self.links)?;
        self.held += 1;
        // `place_bytes` is the length of an IP packet, which is 16 bits.
        self.places[place as usize] = PacketRecord { len: packet.len() as u16, queue, came_at };
        self.packet_mut(place).copy_from_slice(packet);
        Some(place)
    }

    pub(super) fn place(&self, place: u32) -> PacketRecord {
        self.places[place as usize]
    }

    pub(super) fn packet_mut(&mut self, place: u32) -> &mut [u8] {
        let start = place as usize * self.place_bytes;
        &mut self.bytes[start..start + usize::from(self.places[place as usize].len)]
    }

    /// Frees a place that is in no list. Its packet stays readable until the next one is put.
    pub(super) fn free(&mut self, place: u32) -> &[u8] {
        self.held -= 1;
        self.free.push_first(&mut self.links, place);
        self.packet_mut(place)
    }
}
