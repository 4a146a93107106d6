//! Handshakes of roaming neighbours, identified by the first MAC of their messages instead of their
//! source address.

use super::Keyer;
use crate::keyring::{LETTER_BYTES, Letter};
use crate::roaming::LinkAddress;
use recoded_pipeline::params::PeerId;
use recoded_secure::{
    Admission, Arrived, Entropy, HANDSHAKE_BYTES_MAX, Refused, Turn, is_response, path_of,
};
use recoded_wire::handshake::{parse_handshake, write_hop_handshake};
use recoded_wire::header::HEADER_BYTES;

impl Keyer {
    /// Reads a handshake message of a roaming neighbour from any address: its MAC and the path in
    /// it identify the neighbour. The reply goes to that address; the neighbour's place changes
    /// only when a packet under the keys arrives from there, or a response.
    pub(super) fn receive_from(
        &mut self,
        place: LinkAddress,
        letter: &Letter,
    ) -> Result<(), getrandom::Error> {
        if parse_handshake(letter.packet()).is_err() {
            return Ok(());
        }
        let message = &letter.packet()[HEADER_BYTES..];
        for hop in self.senders(place, message) {
            if self.read_from(hop, place, message)? {
                break;
            }
        }
        Ok(())
    }

    /// The neighbours that may have sent a message: one has formed the MAC and the path; a cookie
    /// has neither, and the message that it answers identifies its sender. If only the MAC is
    /// right, the two nodes number their paths differently, and sessions with that key report so.
    fn senders(&mut self, place: LinkAddress, message: &[u8]) -> Vec<usize> {
        let path = path_of(message);
        let of_key: Vec<usize> = {
            let is_sender = |hop: &usize| {
                let party = self.hops[*hop].as_ref();
                party.is_some_and(|party| party.keys.is_from_peer(message))
            };
            self.movers.on_link(place.link).filter(is_sender).collect()
        };
        let is_path = |hop: &usize| {
            let party = self.hops[*hop].as_ref();
            path.is_none_or(|path| party.is_some_and(|party| party.path == path))
        };
        let found: Vec<usize> = of_key.iter().copied().filter(is_path).collect();
        if found.is_empty() {
            for hop in of_key {
                self.hops[hop].iter_mut().for_each(|party| party.refuse(Refused::OtherPath));
            }
        }
        found
    }

    /// Reads a message that a neighbour may have sent. Returns whether it was that neighbour's.
    fn read_from(
        &mut self,
        hop: usize,
        place: LinkAddress,
        message: &[u8],
    ) -> Result<bool, getrandom::Error> {
        let (Some(party), Some(gate)) = (&mut self.hops[hop], &mut self.gate) else {
            return Ok(false);
        };
        let (now, entropy) = (self.clock.now(), Entropy::fresh()?);
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let address = place.address.to_string();
        let arrived = Arrived { address: address.as_bytes(), message };
        let turn = match party.keys.admit(gate, now, &entropy, arrived, &mut out) {
            Ok(Admission::Reply(send)) => {
                let mut packet = [0; LETTER_BYTES];
                let len = write_hop_handshake(&out[..send], &mut packet);
                let reply = Letter::from_elsewhere(place, &packet[..len]);
                reply.into_iter().for_each(|letter| self.send(letter));
                return Ok(true);
            }
            Ok(Admission::Pass) => party.keys.receive(now, message, &mut out, &mut self.memory)?,
            Err(_) => return Ok(false),
        };
        if path_of(message).is_none() && turn.is_err() {
            // A cookie for another one.
            return Ok(false);
        }
        if let (true, Ok(Turn { is_changed: true, .. })) = (is_response(message), &turn)
            && let Ok(id) = u16::try_from(hop)
        {
            // It answers a message of this process, so it is no duplicate.
            self.relocate(PeerId(id), place);
        }
        let is_stale = turn == Err(Refused::Stale);
        self.follow_hop(hop, Some(place), turn, &out);
        if is_stale {
            self.poll_hop(hop, Some(place))?;
        }
        Ok(true)
    }
}
