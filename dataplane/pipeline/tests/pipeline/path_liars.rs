//! The relay of one of two paths lies: it acknowledges all and forwards nothing, invents losses, or
//! withholds a part. The traffic moves to the honest path.

use crate::timed::{Line, Link, Load, MILLI, SECOND};
use recoded_pipeline::params::{FlowParams, Nanos, Spread};
use recoded_wire::header::{Header, PacketType};
use recoded_wire::link::LINK_BYTES;

/// Greedy TCP, and datagrams at a constant rate below that of the honest path.
const GREEDY: Load = Load { bytes: 1400, rate: None, ordered: true };
const DATAGRAMS: Load = Load { bytes: 1300, rate: Some(1200.0), ordered: false };

/// What a relay does with packets towards the sink, and with its reports to the source.
#[derive(Copy, Clone, Debug)]
struct Lie {
    /// One in this many packets is forwarded.
    forwards: u64,
    /// Whether link reports name all packets as lost.
    invents: bool,
    /// Whether reports of the sink are passed on.
    hands_up: bool,
}

const LIES: [(&str, Lie); 6] = [
    ("acknowledges all", Lie { forwards: u64::MAX, invents: false, hands_up: true }),
    (
        "acknowledges all, hides reports",
        Lie { forwards: u64::MAX, invents: false, hands_up: false },
    ),
    ("invents losses", Lie { forwards: u64::MAX, invents: true, hands_up: true }),
    ("invents losses, hides reports", Lie { forwards: u64::MAX, invents: true, hands_up: false }),
    ("invents losses, forwards", Lie { forwards: 1, invents: true, hands_up: true }),
    ("withholds half", Lie { forwards: 2, invents: false, hands_up: true }),
];

/// Node 1, the relay of the first path, lies from `since` on.
fn lie(line: &mut Line, lie: Lie) {
    let mut turn = 0u64;
    line.tamper = Some(Box::new(move |from, bytes| {
        if from == 1 {
            turn += 1;
            if !turn.is_multiple_of(lie.forwards) {
                bytes.clear();
            }
        }
    }));
    line.tamper_back = Some(Box::new(move |from, bytes| {
        let Some(header) = Some(from).filter(|from| *from == 1).and(Header::parse(bytes).ok())
        else {
            return;
        };
        match header.packet_type {
            PacketType::Link => {
                // No backlog, no missing symbols, a short path.
                bytes[34..36].fill(0);
                bytes[44..48].fill(0);
                bytes.truncate(LINK_BYTES);
                if lie.invents {
                    let word = |at| {
                        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                    };
                    let count = word(20).wrapping_sub(word(16)).min(u16::MAX.into()) as u16;
                    bytes.extend(count.to_be_bytes());
                    bytes.extend(count.to_be_bytes());
                }
            }
            PacketType::Feedback if !lie.hands_up => bytes.clear(),
            _ => {}
        }
    }));
}

/// The honest path, and that of the liar.
fn links() -> [Link; 2] {
    [Link { rate: 20e6, ..Link::new(0.02, 10) }, Link { rate: 20e6, ..Link::new(0.02, 5) }]
}

fn spread(spread: Spread) -> impl Fn(&mut FlowParams) {
    move |params| params.spread = spread
}

/// Goodput of the honest path alone.
fn honest(load: Load, nanos: Nanos) -> f64 {
    let mut line = Line::with(&[links()[0]; 2], load, 51, |_| ());
    line.run(2 * SECOND);
    line.run(nanos);
    line.goodput(line.now - nanos)
}

#[test]
fn liar_on_one_of_two_paths_loses_the_traffic_to_the_honest_one() {
    let nanos = 8 * SECOND;
    let [near, liar] = links();
    let mut failures = Vec::new();
    for (load, spreads) in
        [(GREEDY, &[Spread::Sum, Spread::Backup][..]), (DATAGRAMS, &[Spread::Backup][..])]
    {
        let alone = honest(load, nanos);
        for spread_by in spreads.iter().copied() {
            for (name, which) in LIES {
                let paths: [&[Link]; 2] = [&[liar; 2], &[near; 2]];
                let mut line = Line::paths(&paths, load, 52, spread(spread_by));
                lie(&mut line, which);
                line.run(2 * SECOND);
                line.run(nanos);
                let share = line.goodput(line.now - nanos) / alone;
                let gap = line.longest_gap(line.now - nanos) / MILLI;
                println!("{:?} {spread_by:?} {name}: {share:.3}, gap {gap} ms", load.rate);
                if share < 0.9 {
                    failures.push((name, share));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
