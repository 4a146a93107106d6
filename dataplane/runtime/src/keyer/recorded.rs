//! Messages between edges that were read before. A recorded one has a right MAC, and cost two
//! multiplications on the curve each time that it was sent; now it costs a look at this table.

/// Messages known at most. Both sides form one every two minutes, or one a second while they do not
/// hear each other: at half of it, an attacker needs four minutes of such an outage to have more.
/// Looking through all takes less than a hash.
const KNOWN_MAX: usize = 1024;

/// Bytes of both MACs at the end of a message.
const MACS: usize = 32;

/// The first MACs of the newest messages.
#[derive(Default)]
pub(super) struct Recorded {
    macs: Vec<u64>,
    /// Where the next one goes once all places are taken.
    next: usize,
}

impl Recorded {
    /// Whether a message was read before.
    pub(super) fn knows(&self, message: &[u8]) -> bool {
        mac(message).is_some_and(|mac| self.macs.contains(&mac))
    }

    /// Notes that a message was read. Its MAC was verified.
    pub(super) fn note(&mut self, message: &[u8]) {
        let Some(mac) = mac(message) else { return };
        if self.macs.len() < KNOWN_MAX {
            return self.macs.push(mac);
        }
        self.macs[self.next] = mac;
        self.next = (self.next + 1) % KNOWN_MAX;
    }
}

/// Half of the first MAC.
fn mac(message: &[u8]) -> Option<u64> {
    let macs = message.last_chunk::<MACS>()?;
    macs.first_chunk().map(|half| u64::from_be_bytes(*half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_messages_are_known_and_their_number_is_bounded() {
        let message = |number: u32| [&[7; 16][..], &number.to_be_bytes(), &[9; 28]].concat();
        let mut recorded = Recorded::default();
        let last = 3 * KNOWN_MAX as u32;
        for number in 0..last {
            assert!(!recorded.knows(&message(number)));
            recorded.note(&message(number));
            assert!(recorded.knows(&message(number)));
        }
        let known = (0..last).filter(|number| recorded.knows(&message(*number)));
        assert!(known.eq(last - KNOWN_MAX as u32..last));
        recorded.note(&[1; MACS - 1]);
        assert!(!recorded.knows(&[1; MACS - 1]), "no message is as short");
    }
}
