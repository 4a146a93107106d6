//! Power is cut at every step of every command that writes. Afterwards the content is the old or
//! the new one, never a mixture, and everything that was acknowledged is there.

mod memory;

use memory::{Kept, Memory};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use recoded_stripes::{
    Access, Content, Error, Layout, Options, PARTIAL, Set, Storage, StoredFile, Verdict, encode,
    extract, is_pending, repair, replay, shard_name, update, verify,
};

/// Bytes of the content: three stripes, the last one short.
const BYTES: usize = 3 * 64 * 2 + 100;

/// Random power cuts at each step.
const SEEDS: u64 = 6;

fn seed() -> u64 {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand_seed);
    eprintln!("RECODED_SEED={seed}");
    seed
}

fn rand_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64)
}

fn kept(seed: u64) -> impl Iterator<Item = Kept> {
    let random = (0..SEEDS).map(move |index| Kept::Random(seed.wrapping_add(index)));
    [Kept::Nothing, Kept::Everything].into_iter().chain(random)
}

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

fn encode_in(memory: &Memory, bytes: &[u8]) -> Result<(), Error> {
    let layout = Layout::new(3, 2, 64)?;
    let options = Options { layout, content: Content::File, mode: 0o600, threads: 1 };
    encode(memory, bytes, &options, &|_| {}).map(drop)
}

fn encoded(bytes: &[u8]) -> Memory {
    let memory = Memory::new();
    encode_in(&memory, bytes).expect("nothing fails");
    memory
}

/// The content and the verdict, after an interrupted update is completed.
fn read(memory: &Memory) -> Result<(Vec<u8>, Verdict), Error> {
    replay(memory)?;
    let set = Set::scan(memory)?;
    let mut bytes = Vec::new();
    extract(&set, &mut bytes, 1, &|_| {})?;
    Ok((bytes, verify(&set, 1, &|_| {})?.verdict()))
}

fn update_in(memory: &Memory, offset: usize, bytes: &[u8]) -> Result<u64, Error> {
    replay(memory)?;
    update(memory, &Set::scan(memory)?, offset as u64, bytes, &|_| {})
}

fn repair_in(memory: &Memory) -> Result<Vec<usize>, Error> {
    let set = Set::scan(memory)?;
    let report = verify(&set, 1, &|_| {})?;
    repair(memory, &set, &report, 1, &|_| {})
}

#[test]
fn encode_is_complete_or_invisible() {
    let seed = seed();
    let content = content(seed);
    for step in 1.. {
        let memory = Memory::new().with_cut(step);
        let done = encode_in(&memory, &content);
        for kept in kept(seed.wrapping_add(step)) {
            let after = memory.after_power_cut(kept);
            assert!(after.is_published() || done.is_err(), "step {step}, {kept:?}");
            if after.is_published() {
                let (bytes, verdict) = read(&after).expect("it is complete");
                assert_eq!(verdict, Verdict::Healthy, "step {step}, {kept:?}");
                assert!(bytes == content, "step {step}, {kept:?}");
            }
        }
        if done.is_ok() {
            assert!(step > 40, "only {step} steps");
            return;
        }
    }
}

#[test]
fn update_is_old_or_new() {
    let seed = seed();
    let old = content(seed);
    let base = encoded(&old);
    for (offset, length) in [(0, 1), (60, 200), (BYTES - 5, 5), (0, BYTES)] {
        let bytes = &content(!seed)[..length];
        let mut new = old.clone();
        new[offset..][..length].copy_from_slice(bytes);
        for step in 1.. {
            let memory = base.with_cut(step);
            let done = update_in(&memory, offset, bytes);
            for kept in kept(seed.wrapping_add(step)) {
                let place = format!("offset {offset}, step {step}, {kept:?}");
                let after = memory.after_power_cut(kept);
                let (bytes, verdict) = read(&after).expect(&place);
                assert_eq!(verdict, Verdict::Healthy, "{place}");
                assert!(bytes == new || done.is_err() && bytes == old, "{place}");
            }
            if done.is_ok() {
                break;
            }
        }
    }
}

/// Power is cut again while the update is completed, and again.
#[test]
fn replay_is_repeated_until_it_is_done() {
    let seed = seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let old = content(seed);
    let base = encoded(&old);
    let (offset, bytes) = (70, &content(!seed)[..250]);
    let mut new = old.clone();
    new[offset..][..bytes.len()].copy_from_slice(bytes);
    for step in 1.. {
        let memory = base.with_cut(step);
        let done = update_in(&memory, offset, bytes);
        for _ in 0..20 {
            let mut after = memory.after_power_cut(Kept::Random(random.random()));
            for _ in 0..3 {
                let again = after.with_cut(random.random_range(1..50));
                // It fails at the cut, unless it is done before.
                let _ = replay(&again);
                after = again.after_power_cut(Kept::Random(random.random()));
            }
            let (bytes, verdict) = read(&after).expect("it is complete");
            assert_eq!(verdict, Verdict::Healthy, "step {step}");
            assert!(bytes == new || done.is_err() && bytes == old, "step {step}");
        }
        if done.is_ok() {
            return;
        }
    }
}

/// Between the power cut and the replay, a shard is lost and another one replaced by an old copy.
#[test]
fn replay_passes_over_missing_and_stale_shards() {
    let seed = seed();
    let old = content(seed);
    let base = encoded(&old);
    let backup = bytes_of(&base, &shard_name(0));
    update_in(&base, 3, b"first").expect("nothing fails");
    let mut new = old;
    new[3..8].copy_from_slice(b"first");
    new[130..136].copy_from_slice(b"second");
    let mut replayed = 0;
    for step in 1.. {
        let memory = base.with_cut(step);
        let done = update_in(&memory, 130, b"second");
        let after = memory.after_power_cut(Kept::Nothing);
        if is_pending(&after).expect("it is in memory") {
            replayed += 1;
            after.lose(&shard_name(4));
            after.damage(&shard_name(0), |bytes| bytes.clone_from(&backup));
            let (bytes, verdict) = read(&after).expect("three shards are left");
            assert_eq!(verdict, Verdict::Recoverable, "step {step}");
            assert!(bytes == new, "step {step}");
            assert_eq!(repair_in(&after).expect("three shards are left"), [0, 4]);
            let (bytes, verdict) = read(&after).expect("it is healthy");
            assert_eq!(verdict, Verdict::Healthy, "step {step}");
            assert!(bytes == new, "step {step}");
        }
        if done.is_ok() {
            break;
        }
    }
    assert!(replayed > 10, "the journal was there at {replayed} steps");
}

fn bytes_of(memory: &Memory, name: &str) -> Vec<u8> {
    let file = memory.open(name, Access::Read).expect("it exists");
    let mut bytes = vec![0; file.bytes().expect("it is in memory") as usize];
    file.read_at(0, &mut bytes).expect("it is in memory");
    bytes
}

#[test]
fn repair_never_makes_a_set_worse() {
    let seed = seed();
    let content = content(seed);
    let base = encoded(&content);
    base.lose(&shard_name(1));
    base.damage(&shard_name(4), |bytes| bytes[130] ^= 1);
    for step in 1.. {
        let memory = base.with_cut(step);
        let done = repair_in(&memory);
        for kept in kept(seed.wrapping_add(step)) {
            let after = memory.after_power_cut(kept);
            let (bytes, verdict) = read(&after).expect("it is recoverable");
            assert!(bytes == content, "step {step}, {kept:?}");
            assert!(verdict == Verdict::Healthy || done.is_err(), "step {step}, {kept:?}");
            repair_in(&after).expect("it is recoverable");
            let (bytes, verdict) = read(&after).expect("it is healthy");
            assert_eq!(verdict, Verdict::Healthy, "step {step}, {kept:?}");
            assert!(bytes == content, "step {step}, {kept:?}");
        }
        if done.is_ok() {
            return;
        }
    }
}

/// An error of the disk, such as a full one, at any step. The set is usable at once, and after a
/// power cut.
#[test]
fn disk_error_leaves_old_or_new() {
    let seed = seed();
    let (old, new) = (content(seed), content(!seed));
    let base = encoded(&old);
    base.lose(&shard_name(2));
    for step in 1.. {
        let memory = base.with_error(step);
        let repaired = repair_in(&memory);
        let updated = if repaired.is_ok() { update_in(&memory, 0, &new) } else { Ok(0) };
        let is_new = |place: &str, memory: &Memory| {
            let (bytes, verdict) = read(memory).expect(place);
            let expected = if repaired.is_ok() { Verdict::Healthy } else { Verdict::Recoverable };
            assert!(verdict == expected || repaired.is_err(), "{place}: {verdict:?}");
            assert!(bytes == new || bytes == old, "{place}");
            assert!(updated.is_err() || bytes == new || repaired.is_err(), "{place}");
            bytes == new
        };
        for kept in kept(seed.wrapping_add(step)) {
            is_new(&format!("step {step}, {kept:?}"), &memory.after_power_cut(kept));
        }
        is_new(&format!("step {step}"), &memory);
        let left = memory.names().expect("it is in memory");
        assert!(left.iter().all(|name| !name.ends_with(PARTIAL)), "step {step}: {left:?}");
        if !memory.has_failed() {
            assert!(step > 40, "only {step} steps");
            return;
        }
        repair_in(&memory).expect("the disk works again");
        update_in(&memory, 0, &new).expect("the disk works again");
        assert!(is_new("after it", &memory));
        let left = memory.names().expect("it is in memory");
        assert_eq!(left.len(), 5, "step {step}: {left:?}");
    }
}

/// The tests above would find a missing sync: on a disk that ignores syncs, power cuts do harm.
#[test]
fn disk_that_ignores_syncs_is_found() {
    let seed = seed();
    let old = content(seed);
    let bytes = content(!seed);
    let base = encoded(&old).without_syncs();
    let harmed = (1..400).any(|step| {
        let memory = base.with_cut(step);
        let _ = update_in(&memory, 0, &bytes);
        kept(seed.wrapping_add(step)).any(|kept| {
            let after = read(&memory.after_power_cut(kept));
            !after.is_ok_and(|(found, verdict)| {
                verdict == Verdict::Healthy && (found == old || found == bytes)
            })
        })
    });
    assert!(harmed);
}
