//! Silent damage, and files under wrong names.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::support::{Place, random_bytes, seed, shard_path};

/// Bytes of a unit of 1 KiB and its checksum.
const STRIDE: usize = 1024 + 32;

#[test]
fn flipped_bit_is_found_by_shard_and_stripe_and_repaired() {
    let (place, seed) = (Place::new(), seed());
    let content = random_bytes(seed, 30_000);
    place.encode("set", &content, [3, 2]);
    for (shard, stripe) in [(0, 0), (2, 5), (4, 9)] {
        place.change("set", shard, |bytes| bytes[128 + stripe * STRIDE + 7] ^= 4);
    }
    let report = place.run("verify set");
    assert_eq!(report.code, 3);
    for line in [
        "shard 0 (shard-000.stripes): damaged in stripe 0\n",
        "shard 2 (shard-002.stripes): damaged in stripe 5\n",
        // The last unit is shorter, and its checksum is hit.
        "shard 4 (shard-004.stripes): damaged in stripe 9\n",
        "recoverable: 2 of 5 shards are intact\nfix: run `recover`",
    ] {
        assert!(report.text.contains(line), "{line}: {}", report.text);
    }
    assert!(place.content("set") == content);
    place.succeed("recover set");
    place.succeed("verify set");
    assert!(place.content("set") == content);
}

/// Every shard is damaged, but no stripe has more than m bad units.
#[test]
fn random_damage_within_each_stripe_is_repaired() {
    let (place, seed) = (Place::new(), seed());
    let mut random = SmallRng::seed_from_u64(seed);
    let content = random_bytes(seed, 4 * 1024 * 12);
    for round in 0..10 {
        let set = format!("set{round}");
        place.encode(&set, &content, [4, 3]);
        for stripe in 0..12 {
            let mut shards: Vec<usize> = (0..7).collect();
            shards.shuffle(&mut random);
            for shard in &shards[..random.random_range(0..=3)] {
                let start = 128 + stripe * STRIDE + random.random_range(0..STRIDE);
                place.change(&set, *shard, |bytes| bytes[start] ^= random.random_range(1..=255));
            }
        }
        assert!(place.content(&set) == content, "{set}");
        place.succeed(&format!("recover {set}"));
        place.succeed(&format!("verify {set}"));
        assert!(place.content(&set) == content, "{set}");
    }
}

#[test]
fn more_damage_than_parity_is_lost_and_changes_nothing() {
    let place = Place::new();
    place.encode("set", &random_bytes(seed(), 30_000), [3, 2]);
    for shard in 0..3 {
        place.change("set", shard, |bytes| bytes[128 + 4 * STRIDE] ^= 1);
    }
    let report = place.run("verify set");
    assert_eq!(report.code, 4);
    assert!(report.text.contains("lost: stripe 4: fewer than 3 intact units"), "{}", report.text);
    let before = place.read("set/shard-000.stripes");
    let refused = place.run("recover set");
    assert_eq!(refused.code, 1);
    assert!(
        refused.text.contains("stripe 4: 2 of the 3 units that are needed are"),
        "{}",
        refused.text
    );
    assert!(place.read("set/shard-000.stripes") == before);
    assert_eq!(place.run("recover set --output out").code, 1);
    assert!(!place.path("out").exists());
}

#[test]
fn truncated_and_lengthened_shards_are_rebuilt() {
    let place = Place::new();
    let content = random_bytes(seed(), 30_000);
    for (index, length) in [0, 1, 127, 128, 200, 128 + 3 * STRIDE, 20_000].into_iter().enumerate() {
        let set = format!("set{index}");
        place.encode(&set, &content, [3, 2]);
        place.change(&set, 1, |bytes| bytes.resize(length, 7));
        let report = place.run(&format!("verify {set}"));
        assert_eq!(report.code, 3, "{length}: {}", report.text);
        assert!(report.text.contains("shard 1 (shard-001.stripes): "), "{}", report.text);
        assert!(place.content(&set) == content);
        place.succeed(&format!("recover {set}"));
        place.succeed(&format!("verify {set}"));
    }
}

#[test]
fn renamed_shards_are_read_and_repaired_under_their_names() {
    let place = Place::new();
    let content = random_bytes(seed(), 30_000);
    place.encode("set", &content, [3, 2]);
    let set = place.path("set");
    std::fs::rename(shard_path(&set, 0), set.join("zero")).expect("it exists");
    std::fs::rename(shard_path(&set, 1), shard_path(&set, 0)).expect("it exists");
    place.succeed("verify set");
    assert!(place.content("set") == content);
    // The name of shard 0 belongs to another one, and that is not overwritten.
    std::fs::remove_file(set.join("zero")).expect("it exists");
    let refused = place.run("recover set");
    assert_eq!(refused.code, 1);
    let expected = "shard-000.stripes holds shard 1, not 0\nfix: name it shard-001.stripes";
    assert!(refused.text.contains(expected), "{}", refused.text);
    std::fs::rename(shard_path(&set, 0), shard_path(&set, 1)).expect("it exists");
    place.succeed("recover set");
    place.succeed("verify set");
    assert!(place.content("set") == content);
}

#[test]
fn mixed_and_duplicated_shards_are_refused_by_name() {
    let place = Place::new();
    for set in ["one", "two"] {
        place.encode(set, &random_bytes(1, 3000), [3, 2]);
    }
    let [one, two] = ["one", "two"].map(|set| place.path(set));
    std::fs::copy(shard_path(&two, 2), shard_path(&one, 2)).expect("there is room");
    for command in ["verify one", "recover one", "recover one --output x", "info one"] {
        let refused = place.run(command);
        assert_eq!(refused.code, 1, "{command}");
        assert!(refused.text.contains(", shard-002.stripes of set "), "{}", refused.text);
        assert!(refused.text.contains("fix: keep the shards of one set"), "{}", refused.text);
    }
    std::fs::copy(shard_path(&two, 2), two.join("shard-002 (copy)")).expect("there is room");
    let refused = place.run("verify two");
    assert_eq!(refused.code, 1);
    let expected = "shard-002 (copy) and shard-002.stripes are both shard 2";
    assert!(refused.text.contains(expected), "{}", refused.text);
}

#[test]
fn foreign_files_are_ignored_unless_they_have_the_name_of_a_shard() {
    let place = Place::new();
    let content = random_bytes(seed(), 3000);
    place.encode("set", &content, [3, 2]);
    place.write("set/README", b"not a shard");
    place.write("set/shard-1.stripes", b"");
    place.write("set/shard-999.stripes", b"");
    place.succeed("verify set");
    place.write("set/shard-001.stripes", b"a text");
    let report = place.run("verify set");
    assert_eq!(report.code, 3);
    assert!(report.text.contains("its header is damaged"), "{}", report.text);
    place.succeed("recover set");
    place.succeed("verify set");
    assert!(place.content("set") == content);
}

#[test]
fn shard_that_missed_an_update_counts_as_missing() {
    let place = Place::new();
    let mut content = random_bytes(seed(), 30_000);
    place.encode("set", &content, [3, 2]);
    place.copy("set", "backup");
    assert_eq!(place.run_with("update set --at 100", b"new").code, 0);
    content[100..103].copy_from_slice(b"new");
    for shard in [0, 4] {
        std::fs::copy(
            shard_path(&place.path("backup"), shard),
            shard_path(&place.path("set"), shard),
        )
        .expect("there is room");
    }
    let report = place.run("verify set");
    assert_eq!(report.code, 3);
    assert!(report.text.contains("shard 4 (shard-004.stripes): it missed an update"));
    assert!(place.content("set") == content);
    place.succeed("recover set");
    place.succeed("verify set");
    assert!(place.content("set") == content);
}

#[test]
fn links_in_place_of_shards_are_not_followed() {
    let place = Place::new();
    place.encode("set", &random_bytes(seed(), 3000), [3, 2]);
    let path = shard_path(&place.path("set"), 1);
    std::fs::rename(&path, place.path("elsewhere")).expect("it exists");
    std::os::unix::fs::symlink(place.path("elsewhere"), &path).expect("the name is free");
    let before = place.read("elsewhere");
    assert_eq!(place.run("verify set").code, 3);
    place.succeed("recover set");
    assert!(path.symlink_metadata().expect("it exists").is_file());
    assert!(place.read("elsewhere") == before);
}
