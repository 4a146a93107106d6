//! The tables hold: every counter is documented and counted, `docs/reference/counters.md` equals
//! them. `RECODED_WRITE_COUNTERS=1 cargo test -p recoded-counters` rewrites that page.

#![forbid(unsafe_code)]

use recoded_counters::engine::{Close, Declined, EngineCounters, Fault};
use recoded_counters::flow::FlowCounters;
use recoded_counters::link::{LinkCounters, SocketStatistics, Unparsed};
use recoded_counters::tunnel::{QueueDrop, TunnelCounters};
use recoded_counters::worker::{DROP_REASONS, DropReason, PacketCounters};
use recoded_counters::{Counter, TABLES, Table, link, worker};
use recoded_wire::steer::Verdict;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The page with the tables, from the root of the repository.
const PAGE: &str = "docs/reference/counters.md";

const BEGIN: &str = "<!-- tables: written by tests/tables.rs -->\n";

fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.parent().and_then(Path::parent).expect("the repository")
}

/// The tables as the page has them.
fn document() -> String {
    let mut text = String::from(BEGIN);
    for table in TABLES {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n### Of {}\n", table.owner);
        text.push_str("| name | unit | meaning | when it grows |\n|---|---|---|---|\n");
        for Counter { name, unit, meaning, cure } in table.counters() {
            let _ = writeln!(text, "| `{name}` | {} | {meaning} | {cure} |", unit.name());
        }
    }
    text
}

#[test]
fn page_has_every_table_as_the_program_has_it() {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).expect("the page");
    let (prose, _) = page.split_once(BEGIN).expect("the page marks where the tables begin");
    let made = format!("{prose}{}", document());
    if env::var_os("RECODED_WRITE_COUNTERS").is_some() {
        fs::write(&path, &made).expect("a writable page");
        return;
    }
    assert!(page == made, "{PAGE}: run RECODED_WRITE_COUNTERS=1 cargo test -p recoded-counters");
}

#[test]
fn every_counter_has_one_name_and_whole_sentences() {
    for Table { owner, .. } in TABLES {
        let table = TABLES.iter().find(|table| table.owner == owner).expect("a table");
        let mut names = BTreeSet::new();
        for Counter { name, meaning, cure, .. } in table.counters() {
            assert!(names.insert(name), "{owner}: {name} twice");
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(is_plain), "{owner}: {name} is no name");
            assert!(meaning.len() > 1 && meaning.ends_with('.'), "{owner}: {name}: {meaning:?}");
            assert!(cure.is_empty() || cure.ends_with('.'), "{owner}: {name}: {cure:?}");
            let is_shown = |text: &str| !text.contains(['|', '\n']) && !text.contains("  ");
            assert!(is_shown(meaning) && is_shown(cure), "{owner}: {name} breaks its table");
        }
    }
    assert!(worker::TABLE.find("replayed").is_some_and(Counter::is_fault));
    assert!(link::TABLE.find("rx_packets").is_some_and(|counter| !counter.is_fault()));
    assert!(link::TABLE.find("replayed").is_none());
}

/// Files below `folder` whose names end so.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// Words in backquotes that begin as names of counters do, and are none.
fn unknown_counters(text: &str) -> Vec<&str> {
    let begins = [
        "rx_",
        "tx_",
        "ingress_",
        "delivered_",
        "sent_",
        "generations_",
        "repairs_",
        "drop_",
        "pass_",
        "queue_",
    ];
    let words = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    // With a point it is a file or a key.
    let named = words.filter(|word| !word.contains('.'));
    let named = named.filter(|word| begins.iter().any(|begin| word.starts_with(begin)));
    named.filter(|word| !TABLES.iter().any(|table| table.find(word).is_some())).collect()
}

#[test]
fn documents_name_only_counters_that_exist() {
    let mut documents = vec![root().join("README.md"), root().join("TROUBLESHOOTING.md")];
    for part in ["dataplane", "control", "ebpf"] {
        files(&root().join(part), "README.md", &mut documents);
    }
    files(&root().join("docs"), ".md", &mut documents);
    for path in documents {
        let text = fs::read_to_string(&path).expect("a document");
        assert_eq!(unknown_counters(&text), [""; 0], "{}", path.display());
    }
    let text =
        "dropped (`tx_over_rate`), `sent_by_nobody`\nand `frames`, `sent_file.rs`, `rx_lost`";
    assert_eq!(unknown_counters(text), ["sent_by_nobody", "rx_lost"]);
}

/// What runs: the sources in these folders of the repository, without tests, comments and spaces.
fn program(folders: &[&str]) -> String {
    let mut sources = Vec::new();
    folders.iter().for_each(|part| files(&root().join(part), ".rs", &mut sources));
    let mut program = String::new();
    for path in sources {
        let text = fs::read_to_string(path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines.for_each(|line| program.extend(line.chars().filter(|c| !c.is_whitespace())));
    }
    program
}

/// Whether the program has this reason as a value. Behind an arrow or a bar it would be a pattern,
/// and after two equals signs only compared.
fn is_value(program: &str, reason: &str) -> bool {
    program.match_indices(reason).any(|(at, _)| {
        let next = program[at + reason.len()..].chars().next();
        let is_pattern = next.is_some_and(|next| next.is_alphanumeric() || "=|".contains(next));
        !is_pattern && !program[..at].ends_with("==")
    })
}

/// Whether the program adds to the field, sets it, or copies it from what Linux counted.
fn is_counted(program: &str, field: &str) -> bool {
    let ways = [format!(".{field}+="), format!(".{field}="), format!("{field}:counted.")];
    ways.iter().any(|way| {
        let mut found = program.match_indices(way.as_str());
        found.any(|(at, _)| !program[at + way.len()..].starts_with('='))
    })
}

#[test]
fn every_counter_is_counted_somewhere() {
    let program = program(&[
        "dataplane/counters/src",
        "dataplane/xsk/src",
        "dataplane/pipeline/src",
        "dataplane/runtime/src",
    ]);
    let fields = [
        FlowCounters::TABLE,
        PacketCounters::TABLE,
        LinkCounters::TABLE,
        SocketStatistics::TABLE,
        TunnelCounters::TABLE,
    ];
    for Counter { name, .. } in fields.iter().copied().flatten() {
        assert!(is_counted(&program, name), "nothing counts {name}");
    }
    for reason in DropReason::ALL {
        let value = format!("DropReason::{reason:?}");
        assert!(is_value(&program, &value), "nothing drops a packet as {value}");
    }
    for reason in Unparsed::ALL {
        assert!(program.contains(&format!("=>Unparsed::{reason:?},")), "nothing is {reason:?}");
    }
    for reason in QueueDrop::ALL {
        let value = format!("QueueDrop::{reason:?}");
        assert!(is_value(&program, &value), "the queue drops nothing as {value}");
    }
    assert!(program.contains(".queue_dropped["));
    assert!(program.contains(".rx_unparsed[") && program.contains(".dropped["));
    // The search itself finds no counter that is only declared, compared or summed.
    assert!(!is_counted("Flow{made_up:Packets}if cx.made_up==1{sum+=cx.made_up}", "made_up"));
}

#[test]
fn every_verdict_is_reached_and_every_counter_of_the_engine_counted() {
    let xdp = program(&["dataplane/wire/src", "ebpf/prog/src"]);
    for verdict in Verdict::ALL {
        let value = format!("Verdict::{verdict:?}");
        assert!(is_value(&xdp, &value), "nothing ends as {value}");
    }
    let offload = program(&["kernels/offload/src"]);
    let reasons = [
        Declined::ALL.map(|reason| format!("Declined::{reason:?}")).to_vec(),
        Fault::ALL.map(|fault| format!("Fault::{fault:?}")).to_vec(),
        Close::ALL.map(|close| format!("Close::{close:?}")).to_vec(),
    ];
    for value in reasons.concat() {
        assert!(is_value(&offload, &value), "nothing counts {value}");
    }
    for Counter { name, .. } in EngineCounters::TABLE {
        assert!(offload.contains(&format!("counters.{name},")), "nothing counts {name}");
    }
    assert!(!is_value("Fault::Down=>1,iffault==Fault::Down{}Fault::Downed", "Fault::Down"));
}

#[test]
fn sums_add_counts_take_the_longest_and_leave_other_histograms_out() {
    let mut sum = FlowCounters { received: 3, rank_histogram: vec![1, 2], ..Default::default() };
    sum.decoded_after(7);
    let mut other = FlowCounters { received: 4, rank_histogram: vec![5, 5], ..Default::default() };
    other.decoded_after(5);
    sum += &other;
    sum += &FlowCounters { rank_histogram: vec![9, 9, 9], ..FlowCounters::default() };
    assert_eq!((sum.received, sum.decode_delay_nanos, sum.decode_delay_nanos_max), (7, 12, 7));
    assert_eq!(sum.rank_histogram, [6, 7]);

    let mut packets = PacketCounters { received: 9, ..PacketCounters::default() };
    packets.dropped[DropReason::Replayed as usize] = 2;
    let copy = packets;
    packets += &copy;
    let shown: Vec<(&str, u64)> =
        packets.iter().map(|(counter, count)| (counter.name, count)).collect();
    assert_eq!(shown.len(), 4 + DROP_REASONS);
    assert!(shown.contains(&("received", 18)) && shown.contains(&("replayed", 4)));
    assert!(shown.iter().map(|(name, _)| *name).eq(worker::TABLE.counters().map(|it| it.name)));
}
