//! The worker's end of the offload queue: products of the pipeline out, their rows back in.

use crate::caught_panics::whole;
use recoded_code::engine::{Job, Operation};
use recoded_offload::{Inputs, Port};
use recoded_pipeline::egress::{Product, ProductInputs, Ticket};
use std::time::Instant;

/// Products in flight at once: more than any device queue holds.
const OUTSTANDING_MAX: u32 = 4096;

/// Destination of the result with this tag.
#[derive(Copy, Clone)]
enum Tag {
    /// Not in use.
    Free,
    /// For this request of a pipeline.
    Of(Ticket),
    /// For a pipeline that no longer exists.
    OfNone,
}

/// A port of the offload queue and the products in flight.
pub(crate) struct Accelerator {
    port: Port,
    /// Destinations of results, by tag.
    tags: Vec<Tag>,
    /// Tags that are not in use.
    free: Vec<u32>,
}

impl Accelerator {
    pub(crate) fn new(port: Port) -> Accelerator {
        let tags = vec![Tag::Free; OUTSTANDING_MAX as usize];
        Accelerator { port, tags, free: (0..OUTSTANDING_MAX).collect() }
    }

    /// Discards the results of all products offered so far.
    pub(crate) fn forget(&mut self) {
        let out = self.tags.iter_mut().filter(|tag| matches!(tag, Tag::Of(_)));
        out.for_each(|tag| *tag = Tag::OfNone);
    }

    fn outstanding(&self) -> usize {
        self.tags.len() - self.free.len()
    }

    /// Offers a product; see [`recoded_pipeline::egress::Egress::offload`].
    pub(crate) fn offer(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        let Product { rows, columns, row_bytes } = product;
        let Some(tag) = self.free.last().copied() else { return false };
        let job = Job::new(Operation::Multiply, rows, columns, row_bytes);
        let write = |inputs: Inputs<'_>| fill(&mut Writer(inputs));
        whole(|| {
            let is_taken = self.port.offer(job, u64::from(tag), Instant::now(), write).is_ok();
            if is_taken {
                self.free.pop();
                self.tags[tag as usize] = Tag::Of(ticket);
            }
            is_taken
        })
    }

    /// Whether results are pending: no event wakes a worker for them.
    pub(crate) fn is_waiting(&self) -> bool {
        self.outstanding() > 0
    }

    /// Submits products that have waited long enough, and calls `solved` for each result. Returns
    /// whether there was one.
    pub(crate) fn poll(
        &mut self,
        mut solved: impl FnMut(Ticket, &mut dyn Iterator<Item = &[u8]>),
    ) -> bool {
        self.port.tick(Instant::now());
        let Accelerator { port, tags, free } = self;
        let before = free.len();
        loop {
            let jobs = port.poll(|delivered| {
                // No job inverts a matrix, so none has found a singular one.
                let rows = 0..delivered.job().rows;
                let mut rows = rows.map_while(|row| delivered.destination(row).ok());
                let tag = delivered.tag() as u32;
                match std::mem::replace(&mut tags[tag as usize], Tag::Free) {
                    Tag::Free => {}
                    Tag::OfNone => free.push(tag),
                    Tag::Of(ticket) => {
                        free.push(tag);
                        solved(ticket, &mut rows);
                    }
                }
            });
            if jobs == 0 {
                return free.len() > before;
            }
        }
    }
}

struct Writer<'a>(Inputs<'a>);

impl ProductInputs for Writer<'_> {
    fn coefficients(&mut self, row: usize) -> &mut [u8] {
        self.0.coefficients(row)
    }

    fn source(&mut self, column: usize) -> &mut [u8] {
        self.0.source(column)
    }
}
