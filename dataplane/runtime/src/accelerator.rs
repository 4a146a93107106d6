//! The worker's end of the offload queue: products of the pipeline out, their rows back in.

use recoded_code::engine::{Job, Operation};
use recoded_offload::{Inputs, Port};
use recoded_pipeline::egress::{Product, ProductInputs, Ticket};
use std::time::Instant;

/// A port of the queue, and how much is still out.
pub(crate) struct Accelerator {
    port: Port,
    outstanding: usize,
}

impl Accelerator {
    pub(crate) fn new(port: Port) -> Accelerator {
        Accelerator { port, outstanding: 0 }
    }

    /// Offers a product; see [`recoded_pipeline::egress::Egress::offload`].
    pub(crate) fn offer(
        &mut self,
        ticket: Ticket,
        product: Product,
        fill: impl FnOnce(&mut dyn ProductInputs),
    ) -> bool {
        let Product { rows, columns, row_bytes } = product;
        let job = Job::new(Operation::Multiply, rows, columns, row_bytes);
        let offered =
            self.port.offer(job, tag(ticket), Instant::now(), |inputs| fill(&mut Writer(inputs)));
        self.outstanding += usize::from(offered.is_ok());
        offered.is_ok()
    }

    /// Whether results are pending: no event wakes a worker for them.
    pub(crate) fn is_waiting(&self) -> bool {
        self.outstanding > 0
    }

    /// Submits products that have waited long enough, and calls `solved` for each result. Whether
    /// there was one.
    pub(crate) fn poll(
        &mut self,
        mut solved: impl FnMut(Ticket, &mut dyn Iterator<Item = &[u8]>),
    ) -> bool {
        self.port.tick(Instant::now());
        let before = self.outstanding;
        loop {
            let jobs = self.port.poll(|delivered| {
                // None of the jobs inverts a matrix, so none has found one that is singular.
                let rows = 0..delivered.job().rows;
                let mut rows = rows.map_while(|row| delivered.destination(row).ok());
                solved(ticket(delivered.tag()), &mut rows);
            });
            if jobs == 0 {
                return self.outstanding < before;
            }
            self.outstanding -= jobs;
        }
    }
}

fn tag(Ticket { flow, generation }: Ticket) -> u64 {
    u64::from(flow) << 32 | u64::from(generation)
}

fn ticket(tag: u64) -> Ticket {
    Ticket { flow: (tag >> 32) as u32, generation: tag as u32 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_tickets() {
        for (flow, generation) in [(0, 0), (1, u32::MAX), (u32::MAX, 7)] {
            let named = Ticket { flow, generation };
            assert_eq!(ticket(tag(named)), named);
        }
    }
}
