//! Bytes that are replaced in the middle.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::support::{Place, random_bytes, seed};

#[test]
fn random_updates_change_their_bytes_and_parity() {
    let (place, seed) = (Place::new(), seed());
    let mut random = SmallRng::seed_from_u64(seed);
    let mut content = random_bytes(seed, 50_001);
    place.encode("set", &content, [4, 2]);
    for round in 0..40 {
        let at = random.random_range(0..content.len());
        let longest = (content.len() - at).min(if round % 4 == 0 { 50_001 } else { 700 });
        let bytes = random_bytes(random.random(), random.random_range(1..=longest));
        let ended = place.run_with(&format!("update set --at {at}"), &bytes);
        assert_eq!(ended.code, 0, "{}", ended.text);
        content[at..][..bytes.len()].copy_from_slice(&bytes);
        place.succeed("verify set");
        assert!(place.content("set") == content, "round {round}");
    }
    let text = place.succeed("info set").text;
    assert!(text.contains("updates   40"), "{text}");
    // Parity followed: any four shards give the new content.
    for shard in [0, 2] {
        place.lose("set", shard);
    }
    assert!(place.content("set") == content);
}

#[test]
fn update_leaves_other_units_alone() {
    let place = Place::new();
    place.encode("set", &random_bytes(seed(), 4 * 1024 * 8), [4, 2]);
    let shards =
        || (0..6).map(|it| place.read(&format!("set/{}", recoded_stripes::shard_name(it))));
    let before: Vec<Vec<u8>> = shards().collect();
    // Stripe 3, data unit 1.
    let at = 3 * 4096 + 1024 + 5;
    assert_eq!(place.run_with(&format!("update set --at {at}"), b"new").code, 0);
    for (shard, (old, new)) in before.iter().zip(shards()).enumerate() {
        let changed: Vec<usize> = (128..old.len()).filter(|it| old[*it] != new[*it]).collect();
        let unit = 128 + 3 * 1056..128 + 4 * 1056;
        assert!(changed.iter().all(|it| unit.contains(it)), "shard {shard}");
        assert_eq!(changed.is_empty(), [0, 2, 3].contains(&shard), "shard {shard}");
    }
}

#[test]
fn updates_that_do_not_fit_are_refused_and_change_nothing() {
    let place = Place::new();
    let content = random_bytes(seed(), 5000);
    place.encode("set", &content, [3, 2]);
    for (at, bytes, expected) in [
        (5001, 1, "offset 5001 is behind the end: the content has 5000 bytes"),
        (u64::MAX, 1, "is behind the end"),
        (4999, 2, "longer than the rest of the content, 1 B; nothing has changed"),
        (5000, 1, "the rest of the content, 0 B"),
        (0, 5001, "the rest of the content, 5000 B"),
    ] {
        let refused = place.run_with(&format!("update set --at {at}"), &vec![1; bytes]);
        assert_eq!(refused.code, 2, "{at}");
        assert!(refused.text.contains(expected), "{}", refused.text);
        assert_eq!(place.path("set").read_dir().expect("it exists").count(), 5);
    }
    for at in [0, 5000] {
        let nothing = place.run(&format!("update set --at {at}"));
        assert!(nothing.text.contains("0 bytes replaced"), "{}", nothing.text);
    }
    assert!(place.content("set") == content);
    assert_eq!(place.path("set").read_dir().expect("it exists").count(), 5);
}

#[test]
fn update_of_a_damaged_set_asks_for_recovery_first() {
    let place = Place::new();
    let content = random_bytes(seed(), 20_000);
    place.encode("set", &content, [3, 2]);
    // In stripe 0, while others are updated.
    place.change("set", 0, |bytes| bytes[130] ^= 1);
    assert_eq!(place.run_with("update set --at 10000", b"new").code, 0);
    let refused = place.run_with("update set --at 0", b"new");
    assert_eq!(refused.code, 1);
    let expected = "shard 0 is missing or damaged\nfix: run `recover` without --output first";
    assert!(refused.text.contains(expected), "{}", refused.text);
    place.succeed("recover set");
    place.lose("set", 4);
    assert_eq!(place.run_with("update set --at 10000", b"new").code, 1);
    place.succeed("recover set");
    assert_eq!(place.run_with("update set --at 0", b"new").code, 0);
    place.succeed("verify set");
}

#[test]
fn update_of_a_folder_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).expect("it is new");
    place.succeed("encode tree -k 2 -m 1 -o set");
    let refused = place.run_with("update set --at 0", b"new");
    assert_eq!(refused.code, 2);
    assert!(refused.text.contains("fix: encode the folder again"), "{}", refused.text);
}

/// Killed at a random moment, an update has happened or not, and an encoded set exists or not.
#[test]
fn killed_commands_leave_old_or_new() {
    let (place, seed) = (Place::new(), seed());
    let mut random = SmallRng::seed_from_u64(seed);
    let mut content = random_bytes(seed, 6_000_000);
    place.encode("set", &content, [4, 2]);
    for round in 0..8 {
        let new = random_bytes(random.random(), content.len());
        place.write("new", &new);
        let [update, encode] = [
            "update set --at 0".to_string(),
            format!("encode - -k 3 -m 2 --unit-kib 1 -o set{round}"),
        ]
        .map(|arguments| {
            Command::new(env!("CARGO_BIN_EXE_recoded-stripes"))
                .args(arguments.split(' '))
                .current_dir(place.path(""))
                .stdin(File::open(place.path("new")).expect("it exists"))
                .stdout(Stdio::null())
                .spawn()
                .expect("the program starts")
        });
        std::thread::sleep(Duration::from_millis(random.random_range(0..150)));
        for mut child in [update, encode] {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
        place.succeed("verify set");
        let found = place.content("set");
        assert!(found == content || found == new, "round {round}");
        content = found;
        if place.path(&format!("set{round}")).exists() {
            assert!(place.content(&format!("set{round}")) == new, "round {round}");
        }
    }
}
