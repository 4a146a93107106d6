//! Changes of parameters that follow each other faster than other nodes can follow.

use crate::common::{Line, codes, ip_packet, params};
use recoded_pipeline::params::{FlowCode, FlowParams, Role, Snapshot, StreamParams, TunnelId};

const SOURCE: Role = Role::Source { tunnel: TunnelId(0) };

/// Packets, one each millisecond, and how many of them pass between two changes.
const PACKETS: u32 = 2000;
const BETWEEN: u32 = 10;

/// Sends packets over two links while a source adopts these settings in turn.
fn change_in_turn(loss: f64, changes: &[FlowParams]) -> Line {
    let mut line = Line::new(2, loss, 12, |params| params.code = changes[0].code);
    for number in 0..PACKETS {
        line.send(&ip_packet(150, number));
        line.pass(1);
        if number % BETWEEN == 0 {
            let place = (number / BETWEEN) as usize % changes.len();
            let flows = vec![changes[place].clone()];
            let snapshot = Snapshot { edition: u64::from(number) + 2, flows };
            let now = line.now;
            let out = line.nodes[0].apply(&snapshot, now);
            line.carry(0, out);
        }
    }
    line
}

/// Codes of generations abandon one in some thousands; a sink that adopts a larger table may
/// deliver one a second time.
fn assert_delivered(line: &mut Line) {
    line.pass(3000);
    let delivered = line.delivered().len() as u32;
    println!("{delivered} of {PACKETS}");
    assert!(
        (PACKETS - PACKETS / 200..=PACKETS + 2).contains(&delivered),
        "{delivered} of {PACKETS}"
    );
}

/// A third code within a moment once replaced the first, whose packets were still requested, and
/// nodes accepted none of the third: a third of all packets was lost.
#[test]
fn three_codes_in_turn_lose_nothing_and_the_last_one_comes() {
    let changes: Vec<FlowParams> =
        codes().into_iter().map(|code| FlowParams { code, ..params(SOURCE) }).collect();
    let last = (PACKETS - 1) / BETWEEN;
    let asked = changes[last as usize % changes.len()].code.name();
    let mut line = change_in_turn(0.1, &changes);
    assert_delivered(&mut line);
    assert_eq!(line.nodes[0].flow().code.name(), asked);
    line.check();
}

/// Larger generations right after another code once found both stages of relays in use.
#[test]
fn larger_generations_right_after_another_code_lose_nothing() {
    let of = |code, generation_size| FlowParams { code, generation_size, ..params(SOURCE) };
    let stream = FlowCode::Stream(StreamParams::new(1024));
    let changes = [of(stream, 16), of(FlowCode::Rlnc, 16), of(FlowCode::Rlnc, 64)];
    let mut line = change_in_turn(0.1, &changes);
    assert_delivered(&mut line);
    line.check();
}

/// Another window of a stream once discarded all packets in flight.
#[test]
fn another_window_of_a_stream_keeps_what_is_on_its_way() {
    let of = |symbols| {
        let code = FlowCode::Stream(StreamParams::new(symbols));
        FlowParams { code, ..params(SOURCE) }
    };
    let mut line = change_in_turn(0.2, &[of(1024), of(4096), of(256)]);
    assert_delivered(&mut line);
    line.check();
}
