//! Handshakes of roaming neighbours, identified by the content of their messages instead of their
//! source address.

use super::Keyer;
use crate::keyring::{LETTER_BYTES, Letter};
use crate::roaming::LinkAddress;
use recoded_pipeline::params::PeerId;
use recoded_secure::{Admission, Entropy, HANDSHAKE_BYTES_MAX, Refused, Turn, path_of};
use recoded_wire::handshake::{parse_handshake, write_hop_handshake};
use recoded_wire::header::HEADER_BYTES;

impl Keyer {
    /// Reads a handshake message of a roaming neighbour from any address: the key and the path in
    /// it identify the neighbour. The reply goes to that address; the neighbour's place changes
    /// only when a packet under the keys arrives from there.
    pub(super) fn receive_from(
        &mut self,
        place: LinkAddress,
        letter: &Letter,
    ) -> Result<(), getrandom::Error> {
        let (Some(gate), Ok(_)) = (&mut self.gate, parse_handshake(letter.packet())) else {
            return Ok(());
        };
        let (now, entropy) = (self.clock.now(), Entropy::fresh()?);
        let message = &letter.packet()[HEADER_BYTES..];
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let address = place.address.to_string();
        match gate.admit(now, &entropy, address.as_bytes(), message, &mut out) {
            Ok(Admission::Reply(send)) => {
                let mut packet = [0; LETTER_BYTES];
                let len = write_hop_handshake(&out[..send], &mut packet);
                let reply = Letter::from_elsewhere(place, &packet[..len]);
                reply.into_iter().for_each(|letter| self.send(letter));
                return Ok(());
            }
            Ok(Admission::Pass) => {}
            Err(_) => return Ok(()),
        }
        let hops: Vec<usize> = self.movers.on_link(place.link).collect();
        let known = hops.iter().find_map(|hop| self.hops[*hop].as_ref());
        let Some(known) = known else { return Ok(()) };
        let caller = known.keys.caller(&Entropy::fresh()?, message);
        let path = path_of(message);
        if let Some(key) = caller.map(|key| key.to_string()) {
            let Some(hop) = self.path_to(&key, path, hops) else { return Ok(()) };
            let Some(party) = &mut self.hops[hop] else { return Ok(()) };
            let turn = party.keys.receive(now, message, &mut out, &mut self.memory)?;
            let is_stale = turn == Err(Refused::Stale);
            self.follow_hop(hop, Some(place), turn, &out);
            if is_stale {
                self.poll_hop(hop, Some(place))?;
            }
            return Ok(());
        }
        // A response or a cookie is identified by the message that it answers.
        for hop in hops {
            let Some(party) = &mut self.hops[hop] else { continue };
            if path.is_some_and(|path| path != party.path) {
                continue;
            }
            let turn = party.keys.receive(now, message, &mut out, &mut self.memory)?;
            if let Ok(Turn { is_changed, .. }) = turn {
                // A response answers a message of this process, so it is no duplicate.
                if let (true, Ok(id)) = (is_changed, u16::try_from(hop)) {
                    self.relocate(PeerId(id), place);
                }
                self.follow_hop(hop, Some(place), turn, &out);
                break;
            }
        }
        Ok(())
    }

    /// Which of these neighbours has this key and this path. If the key is known and the path is
    /// not, the two nodes number it differently, and sessions with that key then report so.
    fn path_to(&mut self, key: &str, path: Option<u8>, hops: Vec<usize>) -> Option<usize> {
        let of_key = |hop: &usize| self.hops[*hop].as_ref().is_some_and(|it| it.key == key);
        let hops: Vec<usize> = hops.into_iter().filter(of_key).collect();
        let is_path = |hop: &usize| self.hops[*hop].as_ref().map(|party| party.path) == path;
        let found = hops.iter().copied().find(is_path);
        if found.is_none() {
            for hop in hops {
                self.hops[hop].iter_mut().for_each(|party| party.refuse(Refused::OtherPath));
            }
        }
        found
    }
}
