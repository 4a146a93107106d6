//! Timers of a shard: those of its stages, and the reports to its upstream neighbours.

use super::{Shard, split};
use crate::base::time::earlier;
use crate::config::params::Nanos;
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::stage::{RoleState, each};
use crate::unit::role::Lifecycle;
use recoded_wire::frames::Frames;

impl Shard {
    /// Runs due timers; returns the next deadline.
    pub(crate) fn tick(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> Option<Nanos> {
        if self.deadline.is_some_and(|deadline| deadline <= io.now) {
            self.adopt_postponed(io);
            let mut roles = self.tick_roles(io);
            let last = self.upstreams.place();
            for place in 0..self.upstreams.len() {
                self.upstreams.choose(place);
                let due = self.upstreams.present().reporter.due();
                if place != last && due.is_some_and(|due| due <= io.now) {
                    roles = self.tick_roles(io);
                }
                // A role with something to report has done so.
                self.upstreams.present_mut().reporter.settle(io.now);
                self.report_link(io);
            }
            self.upstreams.choose(last);
            let due = earlier(self.upstreams.due(), self.postponed_until());
            self.deadline = earlier(roles, due);
        }
        self.deadline
    }

    /// Runs the timers of both stages.
    fn tick_roles(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) -> Option<Nanos> {
        let (first, second) = self.both(|shard| {
            let (state, mut cx) = split(shard, io);
            each!(state, role => role.tick(&mut cx))
        });
        earlier(first, second.flatten())
    }

    /// Sends a link report to the present neighbour, if one is due.
    fn report_link(&mut self, io: &mut Io<'_, impl Frames, impl Egress>) {
        if self.upstreams.present().link_report_due().is_none_or(|due| due > io.now) {
            return;
        }
        let onward = self.onward(io.now);
        self.upstreams.present_mut().report_link(io, self.id, onward);
    }
}
