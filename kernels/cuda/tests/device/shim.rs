//! The shim finds the faults it is designed to find: kernels that are broken in one way each.

use recoded_cuda::{Geometry, Job};

use crate::card::Card;

const THREADS: u32 = 128;

/// Launch parameters of broken kernels.
fn geometry(shared_bytes: u32) -> Geometry {
    Geometry {
        name: "broken",
        threads: THREADS,
        unit_rows: 1,
        unit_bytes: 1,
        units_per_block: 1,
        shared_bytes,
    }
}

/// Number of threads whose byte differs from that of `partner`.
fn wrong_bytes(kernel: &str, seed: u64, partner: impl Fn(u32) -> u32) -> usize {
    let mut card = Card::new(4096, seed);
    card.finds_races = false;
    let destinations = card.allocate(u64::from(THREADS));
    let jobs = [Job { destinations, ..Job::default() }];
    let fault = card.try_launch(kernel, &geometry(THREADS), 1, &jobs).err();
    assert_eq!(fault, None);
    let bytes = card.read(destinations, THREADS as usize);
    let differ = |&(thread, byte): &(usize, &u8)| u32::from(*byte) != partner(thread as u32);
    bytes.iter().enumerate().filter(differ).count()
}

#[test]
fn missing_block_barrier_gives_wrong_bytes_for_any_seed() {
    for seed in 0..20 {
        let wrong = wrong_bytes("broken_barrier", seed, |thread| (thread + THREADS / 2) % THREADS);
        assert!(wrong >= 32, "seed {seed}: {wrong} wrong bytes");
    }
}

#[test]
fn missing_warp_barrier_gives_wrong_bytes_for_any_seed() {
    for seed in 0..20 {
        let wrong = wrong_bytes("broken_warp", seed, |thread| thread ^ 1);
        assert!(wrong >= 32, "seed {seed}: {wrong} wrong bytes");
    }
}

/// The fault caused by launching `kernel`.
fn fault(kernel: &str, shared_bytes: u32, job: Job) -> String {
    fault_of_blocks(1, kernel, shared_bytes, job)
}

fn fault_of_blocks(blocks: u32, kernel: &str, shared_bytes: u32, job: Job) -> String {
    let mut card = Card::new(4096, 7);
    let launched = card.try_launch(kernel, &geometry(shared_bytes), blocks, &[job]);
    let fault = launched.expect_err("a fault").0;
    // The next launch is not affected.
    card.launch("field_tables", 5, &[]).expect("tables can be made");
    fault
}

#[test]
fn threads_at_different_barriers_are_a_fault() {
    let text = fault("broken_divergence", 0, Job::default());
    assert!(text.contains("stuck"), "{text}");
}

#[test]
fn a_thread_that_leaves_before_a_barrier_is_a_fault() {
    let text = fault("broken_exit", 0, Job::default());
    assert!(text.contains("stuck") && text.contains("thread 5"), "{text}");
}

#[test]
fn an_access_beyond_the_arena_is_a_fault() {
    let text = fault("broken_store", 0, Job { parameter: 4096, ..Job::default() });
    assert!(text.contains("thread 127 of block 0: stray store of 1 bytes at 0x1000"), "{text}");
}

#[test]
fn a_misaligned_access_is_a_fault() {
    let text = fault("broken_alignment", 0, Job::default());
    assert!(text.contains("misaligned store of 4 bytes"), "{text}");
    let text = fault("broken_shared_alignment", THREADS + 4, Job::default());
    assert!(text.contains("misaligned access") && text.contains("shared memory"), "{text}");
}

#[test]
fn a_write_beyond_shared_memory_is_a_fault() {
    let text = fault("broken_shared", THREADS, Job::default());
    assert!(text.contains("beyond its 128 bytes of shared memory"), "{text}");
}

/// Whatever the order of threads.
#[test]
fn races_are_faults() {
    for (kernel, blocks, memory) in [
        ("broken_barrier", 1, "shared"),
        ("broken_warp", 1, "shared"),
        ("broken_blocks", 2, "arena"),
    ] {
        let text = fault_of_blocks(blocks, kernel, THREADS, Job::default());
        assert!(text.contains("another thread") && text.contains(memory), "{kernel}: {text}");
    }
}

#[test]
fn a_load_by_the_read_only_path_of_what_the_launch_writes_is_a_fault() {
    let text = fault("broken_read_only", 0, Job::default());
    assert!(text.contains("read-only path"), "{text}");
}

#[test]
fn a_load_of_what_was_never_written_is_a_fault() {
    let text = fault("broken_unwritten", 0, Job::default());
    assert!(text.contains("never written"), "{text}");
}

#[test]
fn an_unknown_kernel_is_a_fault() {
    assert_eq!(fault("nonsense", 0, Job::default()), "no such kernel");
}
