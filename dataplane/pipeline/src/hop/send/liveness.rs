//! Whether a next hop answers.

use crate::config::params::Nanos;

/// Upper bound on the time counted between two packets: suspend, or a worker that was not
/// scheduled, is not silence of the neighbour.
const STEP_NANOS: Nanos = 1_000_000_000;

/// How long a neighbour has not answered.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// When the last packet was sent, while an answer is outstanding.
    asked_at: Option<Nanos>,
    silence: Nanos,
}

impl Liveness {
    /// Records a packet that requires an answer.
    pub(crate) fn sent(&mut self, now: Nanos) {
        if let Some(before) = self.asked_at.replace(now) {
            let step = now.saturating_sub(before).min(STEP_NANOS);
            self.silence = self.silence.saturating_add(step);
        }
    }

    /// Records an answer.
    pub(crate) fn heard(&mut self) {
        *self = Self::default();
    }

    /// Whether an answer is outstanding.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked_at.is_some()
    }

    /// How long the neighbour has not answered.
    pub(crate) fn silence(&self) -> Nanos {
        self.silence
    }

    /// When its silence reaches `silence`, if it does not answer until then.
    pub(crate) fn reaches(&self, silence: Nanos) -> Option<Nanos> {
        self.asked_at.map(|at| at + silence.saturating_sub(self.silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::report::SILENT_NANOS;

    const MILLI: Nanos = 1_000_000;

    /// Sends every 100 ms until the neighbour counts as silent; returns how long that took.
    fn silent_after(liveness: &mut Liveness, from: Nanos) -> Nanos {
        let times = (0..).map(|number| from + number * 100 * MILLI);
        let sent = |at: &Nanos| {
            liveness.sent(*at);
            liveness.silence() >= SILENT_NANOS
        };
        times.take(1000).find(sent).expect("it never answers") - from
    }

    #[test]
    fn silence_begins_with_the_first_packet_that_is_not_answered() {
        let mut liveness = Liveness::default();
        assert_eq!(silent_after(&mut liveness, 0), SILENT_NANOS);
        liveness.heard();
        assert!(liveness.silence() < SILENT_NANOS && !liveness.is_asked());
        assert_eq!(silent_after(&mut liveness, 3_600_000 * MILLI), SILENT_NANOS);
    }

    #[test]
    fn clock_that_jumps_is_no_silence() {
        let mut liveness = Liveness::default();
        liveness.sent(3_600_000 * MILLI);
        for at in [10, 7_200_000, 20] {
            liveness.sent(at * MILLI);
            assert!(liveness.silence() < SILENT_NANOS);
        }
        assert!(liveness.silence <= STEP_NANOS);
    }
}
