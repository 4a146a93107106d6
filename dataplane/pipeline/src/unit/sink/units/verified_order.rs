//! Places of units whose packets were verified: the key and the number of a packet show whether its
//! source has restarted, has come that far, or formed it before those that are known.

use crate::env::egress::{Egress, KeySerial};
use crate::packet::freshness::Order;
use crate::unit::context::Context;
use crate::unit::sink::unit::Unit;
use crate::unit::sink::units::{UnitPlace, UnitSink};
use recoded_wire::frames::Frames;

/// What the tag of a verified packet shows.
#[derive(Copy, Clone, Debug)]
pub(super) struct Verified {
    pub key: KeySerial,
    /// Its number as tags count: of the generation, or of the batch through all blocks.
    pub serial: u32,
}

impl<U: Unit> UnitSink<U> {
    /// Whether a packet shows that its source restarted. Numbers of blocks are short, so its unit
    /// may seem to be held.
    pub(super) fn is_of_next_session(&self, Verified { key, serial }: Verified) -> bool {
        let freshness = &self.incoming.freshness;
        freshness.order(key, serial) == Order::NewerKey && !freshness.is_near(serial)
    }

    /// Returns where unit `number` belongs, whose packet was verified and which is not held, and
    /// makes room for one that the source has come to.
    pub(super) fn place_verified(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        number: u32,
        verified: Verified,
    ) -> UnitPlace {
        let Some((next, newest)) = self.range else { return UnitPlace::Elsewhere };
        let Verified { key, serial } = verified;
        let freshness = self.incoming.freshness;
        let is_jump =
            (1..=self.units.len() as u32 * U::STEP).contains(&number.wrapping_sub(newest));
        let is_passed = next.wrapping_sub(number).cast_signed() > 0;
        match (freshness.order(key, serial), freshness.is_near(serial)) {
            (Order::Behind, _) => return UnitPlace::Finished,
            // Units before it may still arrive over other paths.
            (_, true) if is_jump => self.advance(cx, number),
            // A late repair of an earlier block.
            (Order::Ahead, true) if is_passed => return UnitPlace::Finished,
            _ => {
                self.restart(cx, number);
                self.incoming.freshness.restart(key, serial);
            }
        }
        UnitPlace::Held
    }
}
