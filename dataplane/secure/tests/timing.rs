//! The time to refuse a tag does not depend on the position of the wrong byte, so an attacker who
//! tries tags learns nothing from the time. The method is that of Reparaz, Balasch, Verbauwhede,
//! "Dude, is my code constant time?", 2017, with means of the fastest nine tenths.
//!
//! The reference for a visible difference is in the same run: the same work, followed by a
//! comparison that stops at the first byte that differs.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_secure::{
    HopDigest, HopReceiver, HopSender, Masks, Secrets, Space, Strength, TRAILER_BYTES, TagKey,
    UnitKind,
};

const PORT: u16 = 49_152;
const PACKET: [u8; 64] = [5; 64];
const SPACE: Space = Space { flow: 1, shard: 0, kind: UnitKind::Generation };

/// The end of the trailer of a hop.
const TAG_BYTES: usize = 8;

/// Calls of a sample, and samples.
const CALLS: usize = 16;
const SAMPLES: usize = 60_000;

/// A difference is visible if it exceeds this share of the difference that the early-exit
/// comparison makes; on a busy machine it is measured again.
const SEEN: f64 = 0.35;
const TRIES: usize = 5;

/// Nanoseconds that one work takes longer than the other, run in random order.
fn difference(works: [&dyn Fn(); 2], random: &mut ChaCha8Rng) -> f64 {
    let mut took: [Vec<u64>; 2] = Default::default();
    for _ in 0..SAMPLES {
        let which = random.next_u32() as usize % 2;
        let begin = Instant::now();
        (0..CALLS).for_each(|_| works[which]());
        took[which].push(begin.elapsed().as_nanos() as u64);
    }
    let [first, second] = took.map(|mut took| {
        took.sort_unstable();
        took.truncate(took.len() * 9 / 10);
        took.iter().sum::<u64>() as f64 / took.len().max(1) as f64
    });
    (first - second) / CALLS as f64
}

/// Stops at the first byte that differs.
fn is_equal_early(left: &[u8], right: &[u8]) -> bool {
    for (left, right) in left.iter().zip(right) {
        if black_box(left) != black_box(right) {
            return false;
        }
    }
    true
}

/// Compares `check`, which must refuse either of two wrong tags, with `check` followed by an
/// early-exit comparison of that tag with the right one.
fn assert_constant(name: &str, check: &dyn Fn(usize) -> bool, right: &[u8], wrong: &[Vec<u8>; 2]) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..TRIES {
        let plain = [0, 1].map(|which| move || assert!(!check(black_box(which))));
        let early = [0, 1].map(|which: usize| {
            move || assert!(!check(black_box(which)) && !is_equal_early(right, &wrong[which]))
        });
        let constant = difference([&plain[0], &plain[1]], &mut random).abs();
        let naive = difference([&early[0], &early[1]], &mut random).abs();
        println!("{name}: {constant:.2} ns, with a comparison that ends early {naive:.2} ns");
        if constant < SEEN * naive {
            return;
        }
    }
    panic!("{name}: the time shows which byte of the tag is wrong");
}

/// Copies with their first, and their last byte changed.
fn first_and_last(right: &[u8]) -> [Vec<u8>; 2] {
    [0, right.len() - 1].map(|at| {
        let mut wrong = right.to_vec();
        wrong[at] ^= 1;
        wrong
    })
}

#[test]
fn time_to_refuse_a_tag_of_a_hop_does_not_depend_on_the_byte_that_is_wrong() {
    let secrets = Secrets::extract(b"salt", &[1; 32]);
    let digest = Arc::new(HopDigest::new(&secrets, 1500));
    let receiver = HopReceiver::new(&secrets, 7, 0, &digest, 256);
    let sender = HopSender::new(&secrets, 7, 0, &digest);
    let mut packet = [&PACKET[..], &[0; TRAILER_BYTES]].concat();
    sender.seal(&mut packet, PORT).expect("a packet of a fit length");
    let (rest, tag) = packet.split_at(packet.len() - TAG_BYTES);
    let wrong = first_and_last(tag);
    let packets = wrong.each_ref().map(|tag| [rest, tag].concat());
    assert!(receiver.check(&packet, PORT).is_ok());
    let check = |which: usize| receiver.check(&packets[which], PORT).is_ok();
    assert_constant("hop", &check, tag, &wrong);
}

#[test]
fn time_to_refuse_a_tag_of_a_symbol_does_not_depend_on_the_byte_that_is_wrong() {
    let seeds = Secrets::extract(b"ends", &[9; 32]).column_seeds(Strength::Strict);
    let key = TagKey::new(Strength::Strict, &seeds, 1500).expect("all columns");
    let mut masks = Masks::new(&key, 1);
    masks.fill(&key, SPACE, 3, 1).expect("room for one");
    let mut tag = vec![0; key.tag_bytes()];
    key.tag(&masks, 0, &[], &PACKET, &mut tag).expect("a tag");
    let wrong = first_and_last(&tag);
    let verify = |tag: &[u8]| key.verify(&masks, &[1], &[], tag, &PACKET).is_ok();
    assert!(verify(&tag));
    assert_constant("symbol", &|which| verify(&wrong[which]), &tag, &wrong);
}
