//! Kernels that measure a card run, and repeat their operation as often as requested.

use recoded_cuda::Job;

use crate::card::Card;

/// The result of two blocks after `rounds` rounds.
fn left(kernel: &str, rounds: u32) -> Vec<Vec<u8>> {
    let mut card = Card::new(1 << 14, u64::from(rounds));
    let destinations = card.allocate(2048);
    let job = Job {
        destinations,
        destination_stride: 1024,
        symbol_bytes: 1024,
        rows: 2,
        depth: rounds,
        ..Job::default()
    };
    card.run(kernel, &[job]);
    card.download(destinations, 2, 1024, 1024)
}

#[test]
fn probes_leave_something_that_depends_on_the_rounds() {
    for kernel in ["probe_permute", "probe_logic", "probe_shared", "probe_bmma", "probe_wgmma"] {
        let one = left(kernel, 1);
        assert!(one[0] == one[1], "{kernel}: blocks do the same");
        assert!(one == left(kernel, 1), "{kernel}: always the same");
        assert!(one != left(kernel, 2), "{kernel}: rounds count");
    }
}
