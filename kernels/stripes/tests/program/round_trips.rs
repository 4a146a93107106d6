//! Content in, content out.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::{Place, random_bytes, seed};

#[test]
fn sizes_around_units_and_stripes_return() {
    let (place, seed) = (Place::new(), seed());
    for (index, bytes) in
        [0, 1, 2, 3, 1023, 1024, 1025, 3071, 3072, 3073, 6144, 100_000].into_iter().enumerate()
    {
        let content = random_bytes(seed, bytes);
        let set = format!("set{index}");
        place.encode(&set, &content, [3, 2]);
        place.succeed(&format!("verify {set}"));
        assert!(place.content(&set) == content, "{bytes} bytes");
        for shard in [0, 3] {
            place.lose(&set, shard);
        }
        assert_eq!(place.run(&format!("verify {set}")).code, 3, "{bytes} bytes");
        assert!(place.content(&set) == content, "{bytes} bytes");
        place.succeed(&format!("recover {set}"));
        place.succeed(&format!("verify {set}"));
        for shard in [1, 2] {
            place.lose(&set, shard);
        }
        assert!(place.content(&set) == content, "{bytes} bytes");
    }
}

#[test]
fn large_file_returns_as_a_file() {
    let place = Place::new();
    let content = random_bytes(seed(), 40_000_007);
    place.write("film.mkv", &content);
    place.succeed("encode film.mkv --data 10 --parity 4 --output film.set");
    for shard in [0, 5, 9, 13] {
        place.lose("film.set", shard);
    }
    place.succeed("recover film.set --output back.mkv");
    assert!(place.read("back.mkv") == content);
    let rebuilt = place.succeed("recover film.set");
    assert!(rebuilt.text.contains("rebuilt: shard 0, 5, 9, 13"), "{}", rebuilt.text);
    assert!(place.succeed("verify film.set").text.contains("healthy: all 14 shards"));
    assert!(place.content("film.set") == content);
}

/// A set is no more readable than its file.
#[test]
fn permissions_of_the_file_bound_those_of_the_set_and_return() {
    let place = Place::new();
    place.write("secret", b"content");
    for (index, mode) in [0o600, 0o640, 0o755].into_iter().enumerate() {
        let (set, back) = (format!("set{index}"), format!("back{index}"));
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path("secret"), permissions).expect("it exists");
        place.succeed(&format!("encode secret -k 2 -m 1 -o {set}"));
        place.succeed(&format!("recover {set} -o {back}"));
        let mode_of = |name: &str| {
            place.path(name).metadata().expect("it exists").permissions().mode() & 0o777
        };
        assert_eq!(mode_of(&set), 0o700 | mode & 0o044 | (mode & 0o044) >> 2, "{mode:o}");
        assert_eq!(mode_of(&back), mode, "{mode:o}");
    }
}

#[test]
fn widest_code_returns() {
    let place = Place::new();
    let content = random_bytes(seed(), 300_000);
    place.encode("set", &content, [200, 56]);
    (0..56).for_each(|shard| place.lose("set", shard * 4));
    assert!(place.content("set") == content);
    place.lose("set", 1);
    assert_eq!(place.run("verify set").code, 4);
}

#[test]
fn every_loss_of_up_to_m_shards_is_recovered() {
    let (place, seed) = (Place::new(), seed());
    for (data, parity) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 3)] {
        let content = random_bytes(seed, data * 2048 + 77);
        let whole = format!("whole{data}-{parity}");
        place.encode(&whole, &content, [data, parity]);
        for lost in 1_u32..1 << (data + parity) {
            let count = lost.count_ones() as usize;
            // Without any shard there is no set.
            if count > parity + 1 || count == data + parity {
                continue;
            }
            let set = format!("set{data}-{parity}-{lost}");
            place.copy(&whole, &set);
            let shards = (0..data + parity).filter(|shard| lost >> shard & 1 == 1);
            shards.for_each(|shard| place.lose(&set, shard));
            if count > parity {
                assert_eq!(place.run(&format!("verify {set}")).code, 4, "{set}");
                let refused = place.run(&format!("recover {set} --output -"));
                assert_eq!(refused.code, 1, "{set}");
                assert!(refused.text.contains("that are needed are intact"), "{}", refused.text);
                continue;
            }
            assert!(place.content(&set) == content, "{set}");
            place.succeed(&format!("recover {set}"));
            place.succeed(&format!("verify {set}"));
        }
    }
}

#[test]
fn info_describes_the_set() {
    let place = Place::new();
    place.encode("set", &random_bytes(1, 5000), [3, 2]);
    place.lose("set", 4);
    let text = place.succeed("info set").text;
    for part in ["3 data + 2 parity", "5000 bytes", "2 stripes", "4 of 5", "shard 4   missing"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&place.succeed("info set --json").out).expect("it is JSON");
    assert_eq!(json["data"], 3);
    assert_eq!(json["total_bytes"], 5000);
    assert_eq!(json["content"], "file");
    assert_eq!(json["shards"][4]["state"], "missing");
    assert_eq!(json["shards"][0]["file"], "shard-000.stripes");
}

/// Memory does not grow with the content, even for the widest code.
#[test]
fn stream_takes_less_than_256_mb() {
    let place = Place::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_recoded-stripes"))
        .args("encode - -k 200 -m 56 --threads 16 -o set".split(' '))
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let zeros = vec![0; 1 << 20];
    (0..160).for_each(|_| stdin.write_all(&zeros).expect("it reads"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("it waits for more");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok());
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
    assert!(peak.is_some_and(|kib| kib < 256_000), "{peak:?} KiB");
}
