//! A link that polices its rate, dropping the excess without a queue: sending faster does not
//! increase goodput.

use crate::config::params::Nanos;

/// Increase of the sent rate that counts as more, and the increase of the received rate expected
/// with it.
const MORE_SENT: f64 = 1.25;
const MORE_RECEIVED: f64 = 1.05;

/// Weight of a round trip in the mean.
const WEIGHT: f64 = 1.0 / 16.0;

/// How long the rate is kept unchanged on such a link.
const QUIET_NANOS: Nanos = 1_000_000_000;

/// Sent and received rate, in bytes per second.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Rates {
    pub sent: f64,
    pub received: f64,
}

/// Detector of a policed link.
#[derive(Clone, Default, Debug)]
pub(crate) struct Policed {
    anchor: Option<Rates>,
    quiet_until: Nanos,
}

impl Policed {
    /// Records a round trip. Returns the flow to revert to if more was sent but no more arrived.
    pub(crate) fn note(&mut self, flow: Rates, now: Nanos) -> Option<Rates> {
        let anchor = *self.anchor.get_or_insert(flow);
        if flow.sent <= MORE_SENT * anchor.sent {
            let blend = |old: f64, new: f64| old + WEIGHT * (new - old);
            let received = blend(anchor.received, flow.received);
            // Small repeated increases that do not arrive add up.
            let most = anchor.sent * (received / anchor.received.max(1.0)).max(1.0);
            let sent = blend(anchor.sent, flow.sent).min(most);
            self.anchor = Some(Rates { sent, received });
            return None;
        }
        if flow.received < MORE_RECEIVED * anchor.received {
            self.quiet_until = now + QUIET_NANOS;
            // The previous rate may have been too high as well.
            let sent = anchor.received.max(anchor.sent / MORE_SENT);
            self.anchor = Some(Rates { sent, received: anchor.received });
            return self.anchor;
        }
        self.anchor = Some(flow);
        None
    }

    /// Whether the rate is kept unchanged.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        now < self.quiet_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_that_does_not_arrive_is_gone_back_from() {
        let mut policed = Policed::default();
        let before = Rates { sent: 10.0, received: 9.0 };
        assert_eq!(policed.note(before, 0), None);
        let less = Rates { sent: 9.0, received: 9.0 };
        assert_eq!(policed.note(Rates { sent: 13.0, received: 9.1 }, 5), Some(less));
        assert!(policed.is_quiet(5 + QUIET_NANOS - 1) && !policed.is_quiet(5 + QUIET_NANOS));
        assert_eq!(policed.note(Rates { sent: 13.0, received: 11.0 }, 6), None);
        assert_eq!(policed.note(Rates { sent: 16.0, received: 13.5 }, 7), None);
    }

    /// Regression: small increases were never detected as too much.
    #[test]
    fn more_that_does_not_arrive_adds_up() {
        let mut policed = Policed::default();
        let mut sent = 10.0;
        let found = (0..200).find_map(|now| {
            sent *= 1.01;
            policed.note(Rates { sent, received: 8.0 }, now)
        });
        assert!(sent < 13.0, "{sent}");
        assert_eq!(found, Some(Rates { sent: 8.08, received: 8.0 }));
        let mut policed = Policed::default();
        for now in 0..200u32 {
            let sent = 10.0 * 1.01f64.powi(now as i32);
            assert_eq!(policed.note(Rates { sent, received: 0.7 * sent }, now.into()), None);
        }
    }
}
