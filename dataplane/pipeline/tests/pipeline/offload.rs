//! Generations whose missing symbols an accelerator computes: soon, late, wrongly or never.

use crate::common::{Outputs, SHARD, Sent, UP, ip_packet, params};
use recoded_gf::Kernel;
use recoded_pipeline::egress::{Product, Ticket};
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowParams, Redundancy, Role, Snapshot, TunnelId};
use recoded_pipeline::recorder::Offered;
use recoded_pipeline::report::FlowCounters;
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::Frames;

const SIZE: usize = 32;

/// Behaviour of an accelerator with the products it is offered.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Accelerator {
    Absent,
    /// Answers after this many packets.
    Works(usize),
    /// Answers with this many rows too few.
    Fails(usize),
    /// Answers under the name of another product.
    Mistakes,
    /// Accepts products and never answers.
    Hangs,
}

struct Host {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Outputs,
    accelerator: Accelerator,
    /// Results and after how many packets they are returned.
    pending: Vec<(usize, Ticket, Vec<Vec<u8>>)>,
}

impl Host {
    fn new(role: Role, accelerator: Accelerator) -> Host {
        let flow = FlowParams {
            generation_size: SIZE,
            redundancy: Redundancy::Fixed(2.0),
            repair: false,
            generations: 4,
            ..params(role)
        };
        let snapshot = Snapshot { edition: 1, flows: vec![flow] };
        Host {
            pipeline: Pipeline::new(&snapshot, 1),
            frames: HeapFrames::new(2048, 2048),
            outputs: Outputs {
                products: (accelerator != Accelerator::Absent).then(Vec::new),
                ..Outputs::default()
            },
            accelerator,
            pending: Vec::new(),
        }
    }

    /// What the accelerator does with the products that it was offered.
    fn compute(&mut self) {
        for offered in self.outputs.products.iter_mut().flat_map(|offered| offered.drain(..)) {
            let Offered { mut ticket, product: Product { rows, row_bytes, .. }, .. } = offered;
            let sources: Vec<&[u8]> = offered.sources.iter().map(Vec::as_slice).collect();
            let mut made = vec![vec![0; row_bytes]; rows];
            let mut views: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            Kernel::best().matmul(&offered.coefficients.concat(), &sources, &mut views);
            let delay = match self.accelerator {
                Accelerator::Absent | Accelerator::Hangs => continue,
                Accelerator::Works(delay) => delay,
                Accelerator::Fails(missing) => {
                    made.truncate(rows.saturating_sub(missing));
                    0
                }
                Accelerator::Mistakes => {
                    ticket.unit += 1;
                    0
                }
            };
            self.pending.push((delay, ticket, made));
        }
    }

    /// Hands the pipeline the results that are due.
    fn solve(&mut self, now: u64) {
        self.compute();
        for (delay, _, _) in &mut self.pending {
            *delay = delay.saturating_sub(1);
        }
        while let Some(due) = self.pending.iter().position(|(delay, ..)| *delay == 0) {
            let (_, ticket, rows) = self.pending.swap_remove(due);
            let rows = rows.iter().map(Vec::as_slice);
            self.pipeline.solved(&mut self.frames, &mut self.outputs, ticket, rows, now);
            self.compute();
        }
    }
}

/// Sends packets and loses every second one; returns the delivered ones.
fn transfer(accelerator: Accelerator, count: u32) -> (Vec<Vec<u8>>, FlowCounters) {
    let mut source = Host::new(Role::Source { tunnel: TunnelId(0) }, Accelerator::Absent);
    let mut sink = Host::new(Role::Sink { tunnel: TunnelId(0), upstream: UP }, accelerator);
    let (mut now, mut packets) = (0, 0);
    for number in 0..count {
        now += 10_000;
        let packet = ip_packet(150, number);
        let (frames, outputs) = (&mut source.frames, &mut source.outputs);
        source.pipeline.ingress(frames, outputs, SHARD, &packet, now);
        for Sent { span, .. } in source.outputs.sent.drain(..) {
            packets += 1;
            let copy = sink.frames.receive(source.frames.bytes(span)).expect("a frame");
            source.frames.release(span.frame);
            if packets % 16 < 5 {
                sink.frames.release(copy.frame);
            } else {
                let datagram = Datagram::best_effort(Some(UP), copy);
                sink.pipeline.receive(&mut sink.frames, &mut sink.outputs, datagram, now);
            }
            sink.solve(now);
        }
    }
    for _ in 0..100 {
        now += 10_000_000;
        sink.solve(now);
        sink.pipeline.tick(&mut sink.frames, &mut sink.outputs, now);
        sink.outputs.release(&mut sink.frames);
    }
    let counters = sink.pipeline.report().flows[0].counters.clone();
    sink.pipeline.release(&mut sink.frames);
    assert_eq!(sink.frames.free(), 2048, "frames leaked");
    (sink.outputs.delivered, counters)
}

#[test]
fn whatever_an_accelerator_does_every_packet_arrives_once_and_in_order() {
    let expected: Vec<Vec<u8>> = (0..2000).map(|number| ip_packet(150, number)).collect();
    for (accelerator, computes) in [
        (Accelerator::Absent, false),
        (Accelerator::Works(0), true),
        (Accelerator::Works(20), true),
        (Accelerator::Fails(1), false),
        (Accelerator::Fails(usize::MAX), false),
    ] {
        let (delivered, counters) = transfer(accelerator, 2000);
        let count = delivered.len();
        // The last generation stays open, and is abandoned at the end.
        assert!(count > 1900 && delivered == expected[..count], "{accelerator:?}: {count} packets");
        assert!(counters.generations_failed <= 1, "{accelerator:?}");
        let offloaded = counters.generations_offloaded;
        assert_eq!(offloaded > 0, computes, "{accelerator:?}: {offloaded} offloaded");
    }
}

#[test]
fn an_accelerator_that_never_answers_costs_time_but_no_packet() {
    for accelerator in [Accelerator::Hangs, Accelerator::Mistakes] {
        // As many generations as the table holds: earlier ones are abandoned for later ones.
        let (delivered, counters) = transfer(accelerator, 120);
        let expected: Vec<Vec<u8>> = (0..120).map(|number| ip_packet(150, number)).collect();
        let count = delivered.len();
        assert!(count >= 80 && delivered == expected[..count], "{accelerator:?}: {count} packets");
        assert!(counters.generations_failed <= 1, "{accelerator:?}");
        assert_eq!(counters.generations_offloaded, 0, "{accelerator:?}");
    }
}
