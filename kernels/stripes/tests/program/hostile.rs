//! Files that were made to do harm. The program ends soon, with an error or a report.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use recoded_stripes::{Content, Header, JOURNAL, Layout, SetId, shard_name};

use crate::support::{Place, random_bytes, seed, shard_path};

fn header(total_bytes: u64) -> Header {
    let layout = Layout::new(3, 2, 1024).and_then(|it| it.with_total(total_bytes));
    Header {
        set: SetId([9; 16]),
        layout: layout.expect("it is in range"),
        content: Content::File,
        mode: 0o600,
        revision: 0,
        shard: 0,
    }
}

#[test]
fn header_that_states_a_huge_length_costs_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("set")).expect("it is new");
    for shard in 0..5 {
        let bytes = [&header(1 << 56).of_shard(shard).to_bytes()[..], &[7; 3000]].concat();
        place.write(&format!("set/{}", shard_name(shard)), &bytes);
    }
    let start = Instant::now();
    let report = place.run("verify set");
    assert_eq!(report.code, 4, "{}", report.text);
    for command in ["recover set", "recover set --output out", "recover set --output -"] {
        let refused = place.run(command);
        assert_eq!(refused.code, 1, "{command}");
        assert!(
            refused.text.contains("of the 3 units that are needed are intact"),
            "{}",
            refused.text
        );
    }
    assert_eq!(place.run_with("update set --at 0", b"x").code, 1);
    place.succeed("info set");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn headers_that_contradict_each_other_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("set")).expect("it is new");
    for shard in 0..5 {
        let header = header(3000 + shard as u64 / 4).of_shard(shard);
        place.write(&format!("set/{}", shard_name(shard)), &header.to_bytes());
    }
    let refused = place.run("verify set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("shard-004.stripes contradict each other"), "{}", refused.text);
}

#[test]
fn newer_format_is_refused() {
    let place = Place::new();
    place.encode("set", &random_bytes(1, 3000), [3, 2]);
    place.change("set", 2, |bytes| {
        bytes[8] = 2;
        let sum = blake3::hash(&bytes[..96]);
        bytes[96..128].copy_from_slice(sum.as_bytes());
    });
    let refused = place.run("verify set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("shard-002.stripes has format 2\nfix: use a newer version"));
}

#[test]
fn random_bytes_in_shards_and_journals_never_panic() {
    let (place, seed) = (Place::new(), seed());
    let mut random = SmallRng::seed_from_u64(seed);
    let content = random_bytes(seed, 9000);
    place.encode("whole", &content, [3, 2]);
    for round in 0..60 {
        let set = format!("set{round}");
        place.copy("whole", &set);
        for shard in 0..random.random_range(1..=5) {
            let path = shard_path(&place.path(&set), shard);
            let mut bytes = std::fs::read(&path).expect("it exists");
            for _ in 0..random.random_range(1..20) {
                let range = if random.random() { 128 } else { bytes.len() };
                bytes[random.random_range(0..range)] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len() * 2));
            std::fs::write(&path, bytes).expect("there is room");
        }
        if round % 4 == 0 {
            let mut bytes = random_bytes(random.random(), random.random_range(0..5000));
            let start = b"RCDJOURN\x01\0\0\0\0\0\0\0";
            let length = start.len().min(bytes.len());
            bytes[..length].copy_from_slice(&start[..length]);
            place.write(&format!("{set}/{JOURNAL}"), &bytes);
            let refused = place.run(&format!("verify {set}"));
            assert_eq!(refused.code, 1, "{}", refused.text);
            assert!(refused.text.contains("the journal of an interrupted update is"));
            std::fs::remove_file(place.path(&set).join(JOURNAL)).expect("it exists");
        }
        let verdict = place.run(&format!("verify {set}")).code;
        let recovered = place.run(&format!("recover {set} --output -"));
        assert!([0, 1, 3, 4].contains(&verdict), "{verdict}");
        // Recovered bytes are right, or there is an error.
        assert_eq!(recovered.code == 0, verdict == 0 || verdict == 3, "{set}: {verdict}");
        assert!(recovered.code != 0 || recovered.out == content, "{set}");
        let repaired = place.run(&format!("recover {set}")).code;
        assert_eq!(repaired == 0, verdict == 0 || verdict == 3, "{set}: {verdict}");
    }
}

/// Forged checksums can make units that contradict each other. That is found, too.
#[test]
fn intact_units_of_different_contents_are_found() {
    let place = Place::new();
    place.encode("set", &random_bytes(seed(), 3072), [3, 2]);
    let id: [u8; 16] = place.read("set/shard-001.stripes")[24..40].try_into().expect("16 bytes");
    place.change("set", 1, |bytes| {
        bytes[128] ^= 1;
        let forged = recoded_stripes::Place { set: SetId(id), shard: 1, stripe: 0 };
        let sum = forged.checksum(&bytes[128..128 + 1024]);
        bytes[128 + 1024..].copy_from_slice(&sum);
    });
    let report = place.run("verify set");
    assert_eq!(report.code, 4);
    assert!(report.text.contains("stripe 0: intact units of different contents"));
    let refused = place.run("recover set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("belong to different contents"), "{}", refused.text);
}

/// A journal that returns after later updates would undo them in part.
#[test]
fn journal_older_than_its_shards_is_refused() {
    let place = Place::new();
    place.encode("set", &random_bytes(seed(), 3000), [3, 2]);
    assert_eq!(place.run_with("update set --at 0", b"first").code, 0);
    let mut bytes = b"RCDJOURN\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend(&place.read("set/shard-000.stripes")[..128]);
    bytes.extend(blake3::hash(&bytes).as_bytes());
    place.write(&format!("set/{JOURNAL}"), &bytes);
    let replayed = place.run("verify set");
    assert!(replayed.text.contains("an interrupted update has been completed"));
    assert_eq!(place.run_with("update set --at 0", b"second").code, 0);
    place.write(&format!("set/{JOURNAL}"), &bytes);
    let refused = place.run("verify set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("older than its shards"), "{}", refused.text);
}

/// A journal of another set is not applied.
#[test]
fn journal_of_another_set_is_refused() {
    let place = Place::new();
    let content = random_bytes(seed(), 3000);
    place.encode("set", &content, [3, 2]);
    let mut bytes = b"RCDJOURN\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend(header(3000).to_bytes());
    bytes.extend([0; 16]);
    bytes.extend([7; 1000]);
    bytes.extend(blake3::hash(&bytes).as_bytes());
    place.write(&format!("set/{JOURNAL}"), &bytes);
    let refused = place.run("verify set");
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("update is of another set"), "{}", refused.text);
    assert!(place.succeed("info set").text.contains("and one to be completed"));
    std::fs::remove_file(place.path("set").join(JOURNAL)).expect("it exists");
    place.succeed("verify set");
    assert!(place.content("set") == content);
}
