//! Competing traffic: other lines that share a link, TCP flows that share one and end there, and
//! TCP inside the tunnel.

use super::tcp::Tcp;
use super::{FLOW, Line, Nanos, ShardId, WAKE_NANOS, What};
use std::collections::VecDeque;

/// Most packets that wait in front of the tunnel.
const WAITING_MAX: usize = 500;

/// UDP payload that gives as many bytes on the link as a full packet of TCP.
const PACKET_BYTES: usize = 1472;

/// One TCP flow: on a link, or inside.
pub struct Beside {
    hop: Option<usize>,
    tcp: Tcp,
    wakes_at: Option<Nanos>,
    is_over: bool,
}

/// Lets time pass for several lines, so that those that share links interact.
pub fn run_beside(lines: &mut [Line], nanos: Nanos) {
    /// Less than a packet takes on any link that is shared in a test.
    const TURN_NANOS: Nanos = 50_000;
    for _ in 0..nanos / TURN_NANOS {
        lines.iter_mut().for_each(|line| line.run(TURN_NANOS));
    }
}

impl Line {
    /// Makes a link the same as that of another line, which must run together with this one.
    pub fn share(&mut self, hop: usize, other: &Line, of_other: usize) {
        self.down[hop].share(&other.down[of_other]);
        self.up[hop].share(&other.up[of_other]);
    }

    /// From now on a TCP flow shares a link towards the sink; returns its index.
    pub fn beside(&mut self, hop: usize, control: &str) -> usize {
        self.add(Some(hop), control)
    }

    /// From the start a TCP flow is all that enters. Acknowledgements take as long as the links,
    /// and none is lost.
    pub fn inside(&mut self, control: &str) {
        self.pause();
        self.waiting = Some(VecDeque::with_capacity(WAITING_MAX));
        self.inside = Some(self.beside.len());
        self.add(None, control);
    }

    fn add(&mut self, hop: Option<usize>, control: &str) -> usize {
        self.beside.push(Beside { hop, tcp: Tcp::new(control), wakes_at: None, is_over: false });
        self.turn_beside(self.beside.len() - 1);
        self.beside.len() - 1
    }

    /// Notes that a packet of the flow inside arrived.
    pub(super) fn came_inside(&mut self, number: u32) {
        if let Some(index) = self.inside {
            let back: Nanos = self.up.iter().map(|channel| channel.link.delay).sum();
            let acked = Some(number.into());
            self.push(self.now + back, What::Beside { index, acked });
        }
    }

    /// Nothing enters until [`Line::go_on`].
    pub fn pause(&mut self) {
        self.ingress_at = Some(Nanos::MAX);
    }

    pub fn go_on(&mut self) {
        self.ingress_at = None;
        self.ingress(self.now);
    }

    /// Ends all of them: none sends from now on.
    pub fn end_beside(&mut self) {
        self.beside.iter_mut().for_each(|beside| beside.is_over = true);
    }

    /// Packets of one of them that arrived.
    pub fn came_beside(&self, index: usize) -> u64 {
        self.beside[index].tcp.delivered
    }

    /// Lets the source take waiting packets, as far as it accepts them.
    pub(super) fn take_waiting(&mut self) {
        let id = ShardId { flow: FLOW, shard: 0 };
        while self.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty())
            && self.nodes[0].pipeline.opens_at(id, self.now).is_ok()
        {
            let number = self.waiting.as_mut().and_then(VecDeque::pop_front);
            number.into_iter().for_each(|number| self.ingress_of(id, number));
        }
        let waits =
            self.inside.and(self.waiting.as_ref()).is_some_and(|waiting| !waiting.is_empty());
        if let Err(Some(at)) = self.nodes[0].pipeline.opens_at(id, self.now)
            && waits
        {
            self.ingress(at.max(self.now) + WAKE_NANOS);
        }
    }

    pub(super) fn acked_beside(&mut self, index: usize, number: u64) {
        self.beside[index].tcp.acked(number, self.now);
        self.turn_beside(index);
    }

    pub(super) fn turn_beside(&mut self, index: usize) {
        let now = self.now;
        let Beside { hop, tcp, wakes_at, is_over } = &mut self.beside[index];
        if *is_over {
            return;
        }
        tcp.time_out(now);
        let mut acked = Vec::new();
        let opens_at = loop {
            match tcp.opens_at(now) {
                Ok(()) => {}
                Err(at) => break at,
            }
            let number = tcp.send(now);
            if let Some(hop) = *hop {
                let back = self.up[hop].link.delay;
                let arrives = self.down[hop].send(PACKET_BYTES, now);
                acked.extend(arrives.first().map(|at| (at + back, number)));
                continue;
            }
            self.entered.push(now);
            if let Some(waiting) = self.waiting.as_mut().filter(|it| it.len() < WAITING_MAX) {
                waiting.push_back(number as u32);
            }
        };
        let is_inside = hop.is_none();
        let wakes = opens_at.or(tcp.times_out_at()).unwrap_or(Nanos::MAX);
        let is_sooner = wakes_at.is_none_or(|at| wakes < at || at <= now);
        if is_sooner {
            *wakes_at = Some(wakes);
            self.push(wakes, What::Beside { index, acked: None });
        }
        for (at, number) in acked {
            self.push(at, What::Beside { index, acked: Some(number) });
        }
        if is_inside {
            self.take_waiting();
            self.turn(0);
        }
    }
}
