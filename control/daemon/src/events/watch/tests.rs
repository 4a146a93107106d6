use super::drops::CALM;
use super::*;
use recoded_api::v1::{Flow, FlowNeighbour};
use std::collections::BTreeMap;

fn state() -> State {
    let hop = FlowNeighbour {
        next_hop: "east:10.0.2.2".into(),
        rate_mbit: 90.0,
        round_trip_us: Some(2_000.0),
        heard_ago_seconds: Some(0.1),
        ..FlowNeighbour::default()
    };
    let source = Flow {
        id: 1,
        role: "source".into(),
        state: Some("up".into()),
        code: "stream".into(),
        field: 256,
        generation_size: 64,
        symbol_bytes: 1400,
        neighbours: vec![hop],
        ..Flow::default()
    };
    let sink =
        Flow { id: 2, role: "sink".into(), state: Some("waiting".into()), ..Flow::default() };
    let link = Link {
        name: "east".into(),
        interface: "eth1".into(),
        state: "up".into(),
        mtu: 1500,
        ..Link::default()
    };
    let tunnel = Tunnel {
        name: "rec0".into(),
        state: "present".into(),
        mtu: 1400,
        mtu_configured: 1400,
        ..Tunnel::default()
    };
    State {
        version: String::new(),
        edition: 1,
        protocol: 3,
        uptime_seconds: 5,
        kernel: String::new(),
        links: vec![link],
        workers: vec![],
        flows: vec![source, sink],
        tunnels: vec![tunnel],
        verdicts: BTreeMap::new(),
        drops: BTreeMap::new(),
        engine: Engine::default(),
        sessions: vec![Session { with: "east:10.0.2.2".into(), ..Session::default() }],
        config: String::new(),
    }
}

/// Events of a state change, and of its reversal.
fn there_and_back(change: impl FnOnce(&mut State)) -> [Vec<(String, String, String)>; 2] {
    let mut watcher = Watcher::default();
    assert_eq!(watcher.look(state()), [], "nothing is wrong at the start");
    assert_eq!(watcher.look(state()), [], "and nothing has changed");
    let mut changed = state();
    change(&mut changed);
    let words = |events: Vec<Happened>| {
        let words = |it: Happened| (it.kind.name().to_owned(), it.subject, it.text);
        events.into_iter().map(words).collect()
    };
    [words(watcher.look(changed)), words(watcher.look(state()))]
}

fn told(kind: &str, subject: &str, text: &str) -> Vec<(String, String, String)> {
    vec![(kind.into(), subject.into(), text.into())]
}

#[test]
fn flow_that_goes_down_and_comes_back_is_told() {
    let [down, up] = there_and_back(|state| state.flows[0].state = Some("down".into()));
    assert_eq!(down, told("flow_down", "flow 1", "down: no next hop answers"));
    assert_eq!(up, told("flow_up", "flow 1", "up: a next hop answers"));
    let [up, waiting] = there_and_back(|state| state.flows[1].state = Some("up".into()));
    assert_eq!(up, told("flow_up", "flow 2", "up: packets come"));
    assert_eq!(waiting, told("flow_waiting", "flow 2", "waiting for the first packet"));
    let mut watcher = Watcher::default();
    let quiet = |is| {
        let mut state = state();
        state.flows[1].state = Some(if is { "quiet" } else { "up" }.into());
        state
    };
    watcher.look(quiet(false));
    assert_eq!(watcher.look(quiet(true))[0].kind, Kind::FlowQuiet);
    assert_eq!(watcher.look(quiet(false))[0].kind, Kind::FlowActive);
}

#[test]
fn next_hop_link_tunnel_and_mtu_are_told_there_and_back() {
    let [silent, heard] = there_and_back(|state| state.flows[0].neighbours[0].silent = true);
    let text =
        "east:10.0.2.2 does not answer, although packets are sent to it; last report 0 s ago";
    assert_eq!(silent, told("next_hop_silent", "flow 1", text));
    assert_eq!(heard, told("next_hop_heard", "flow 1", "east:10.0.2.2 answers again"));

    let [down, up] = there_and_back(|state| state.links[0].state = "down".into());
    assert_eq!(down, told("link_down", "link east", "eth1 is down"));
    assert_eq!(up, told("link_up", "link east", "eth1 is up"));
    let [gone, _] = there_and_back(|state| {
        (state.links[0].state, state.links[0].mtu) = ("waiting".into(), 0);
        state.links[0].waits = "interface eth1 is missing".into();
    });
    let text = "waiting: interface eth1 is missing: packets for it are dropped";
    assert_eq!(gone, told("link_down", "link east", text));
    let [smaller, larger] = there_and_back(|state| state.links[0].mtu = 1400);
    assert_eq!(smaller, told("mtu_changed", "link east", "MTU 1400 of eth1, before 1500"));
    assert_eq!(larger, told("mtu_changed", "link east", "MTU 1500 of eth1, before 1400"));

    let [down, up] = there_and_back(|state| state.tunnels[0].state = "no-carrier".into());
    let text = "it has no carrier, since no next hop of its flow answers";
    assert_eq!(down, told("tunnel_down", "tunnel rec0", text));
    assert_eq!(up, told("tunnel_up", "tunnel rec0", "it has a carrier"));
    let [smaller, normal] = there_and_back(|state| state.tunnels[0].mtu = 1300);
    let text = "MTU 1300 instead of 1400: its path carries no larger packets";
    assert_eq!(smaller, told("mtu_smaller", "tunnel rec0", text));
    assert_eq!(normal, told("mtu_normal", "tunnel rec0", "MTU 1400, as configured"));
    let [lost, arrive] =
        there_and_back(|state| state.flows[0].neighbours[0].lost_packet_bytes = Some(1473));
    let text = "IP packets of 1473 bytes and more do not arrive at east:10.0.2.2";
    assert_eq!(lost, told("mtu_smaller", "flow 1", text));
    let text = "large packets arrive at east:10.0.2.2 again";
    assert_eq!(arrive, told("mtu_normal", "flow 1", text));
    let [narrow, wide] =
        there_and_back(|state| state.flows[0].neighbours[0].needed_packet_bytes = Some(671));
    let text = "the path to east:10.0.2.2 carries no full packets of any tunnel: its MTU has to be \
                671 bytes or more";
    assert_eq!(narrow, told("mtu_smaller", "flow 1", text));
    let text = "the path to east:10.0.2.2 carries packets of the least tunnel MTU again";
    assert_eq!(wide, told("mtu_normal", "flow 1", text));
}

#[test]
fn neighbours_that_disagree_are_told_once_and_when_they_agree_again() {
    let disagreement = Disagreement {
        flow: 7,
        reason: "unknown_flow".into(),
        ours: true,
        cause: "10.0.2.2 sends flow 7, which this node does not have".into(),
        cure: "configure flow 7 here".into(),
    };
    let [disagrees, agrees] = there_and_back(|state| {
        let neighbour = Neighbour {
            address: "10.0.2.2".into(),
            disagreements: vec![disagreement.clone()],
            ..Neighbour::default()
        };
        state.links[0].neighbours = vec![neighbour];
    });
    let text = "10.0.2.2 sends flow 7, which this node does not have (configure flow 7 here)";
    assert_eq!(disagrees, told("neighbour_disagrees", "link east", text));
    let text = "10.0.2.2 and this node agree on flow 7, or speak of it no more";
    assert_eq!(agrees, told("neighbour_agrees", "link east", text));
}

/// Once, with the neighbour and both versions; further packets are the same event.
#[test]
fn neighbour_of_another_version_is_named_where_its_drops_begin() {
    let with = |packets: u64| {
        let mut state = state();
        state.verdicts.insert("drop_version".into(), packets);
        state.links[0].neighbours = vec![Neighbour {
            address: "10.0.2.2".into(),
            other_protocol: (packets > 0).then_some(2),
            other_protocol_packets: packets,
            ..Neighbour::default()
        }];
        state
    };
    let mut watcher = Watcher::default();
    assert!(watcher.look(with(0)).is_empty());
    let events = watcher.look(with(3));
    let [event] = &events[..] else { panic!("{events:?}") };
    let words = "; 10.0.2.2 speaks protocol 2, this box 3: its packets are dropped (upgrade \
                 10.0.2.2; both then have the same version)";
    assert!(event.text.starts_with("drop_version begins to rise, 3 in a second"), "{}", event.text);
    assert!(event.text.ends_with(words), "{}", event.text);
    assert!((4..40).all(|packets| watcher.look(with(packets)).is_empty()));
}

#[test]
fn clocks_that_differ_are_told_once_and_when_they_agree_again() {
    let [differs, agrees] = there_and_back(|state| {
        let address = "10.0.2.2".into();
        let neighbour = Neighbour { address, clock_ahead_seconds: -90, ..Neighbour::default() };
        state.links[0].neighbours = vec![neighbour];
    });
    let text = "the clock of 10.0.2.2 is 90 s behind this node's (set the wrong one, for example \
                by NTP)";
    assert_eq!(differs, told("neighbour_disagrees", "link east", text));
    // Without a neighbour there is nothing to compare.
    assert!(agrees.is_empty(), "{agrees:?}");
}

#[test]
fn neighbours_that_move_are_told_with_where_they_are() {
    let with = |endpoint: &str| {
        let mut state = state();
        state.links[0].neighbours = vec![Neighbour {
            address: "10.0.2.2".into(),
            endpoint: endpoint.into(),
            ..Neighbour::default()
        }];
        state
    };
    let mut watcher = Watcher::default();
    let mut look = |endpoint| {
        let told = watcher.look(with(endpoint)).into_iter();
        let moved = told.filter(|event| event.kind == Kind::NeighbourMoved);
        moved.map(|event| event.text).collect::<Vec<_>>()
    };
    assert_eq!(look(""), [""; 0]);
    assert_eq!(look("192.0.2.7:4000"), ["10.0.2.2 is at 192.0.2.7:4000 now"]);
    assert_eq!(look("192.0.2.7:4000"), [""; 0]);
    assert_eq!(look(""), ["10.0.2.2 is where it is configured again"]);
}

#[test]
fn link_that_is_down_from_the_start_is_told() {
    let mut first = state();
    first.links[0].state = "down".into();
    assert_eq!(Watcher::default().look(first)[0].kind, Kind::LinkDown);
}

#[test]
fn sessions_are_told_when_keys_come_change_go_or_are_refused() {
    let subject = "session with east:10.0.2.2";
    let [up, down] = there_and_back(|state| {
        state.sessions[0].age_seconds = Some(0.5);
        state.sessions[0].handshakes = 1;
    });
    assert_eq!(up, told("session_up", subject, "keys are agreed on"));
    assert_eq!(down, told("session_down", subject, "there are no keys any more"));
    let [refused, _] = there_and_back(|state| {
        (state.sessions[0].refused, state.sessions[0].refusal) = (2, "unknown key".into());
    });
    let text = "a handshake was refused: unknown key";
    assert_eq!(refused, told("session_refused", subject, text));
    let mut watcher = Watcher::default();
    let keyed = |handshakes| {
        let mut state = state();
        state.sessions[0] =
            Session { age_seconds: Some(1.0), handshakes, ..state.sessions[0].clone() };
        state
    };
    watcher.look(keyed(1));
    assert_eq!(watcher.look(keyed(2))[0].kind, Kind::SessionRekeyed);
    assert_eq!(watcher.look(keyed(2)), []);
    // Handshakes every ten seconds are not an event.
    let one_way = |handshakes| {
        let mut state = keyed(handshakes);
        state.sessions[0].one_way = true;
        state
    };
    watcher.look(one_way(2));
    assert_eq!(watcher.look(one_way(3)), []);
}

#[test]
fn code_sizes_and_flows_that_come_and_go_are_told() {
    let [changed, _] = there_and_back(|state| {
        state.flows[0].code = "rlnc".into();
        state.flows[0].field = 16;
    });
    let text = "now rlnc, field 16, size 64, symbols of 1400 bytes; before stream, field 256, \
                size 64, symbols of 1400 bytes";
    assert_eq!(changed, told("flow_changed", "flow 1", text));
    let [removed, added] = there_and_back(|state| drop(state.flows.pop()));
    assert_eq!(removed, told("flow_removed", "flow 2", "removed"));
    assert_eq!(added, told("flow_added", "flow 2", "added, as sink"));
    // A sink learns its code from the first packet, which is no change; nor are packet sizes.
    let [learned, _] = there_and_back(|state| state.flows[1].code = "rlnc".into());
    assert_eq!(learned, []);
    let mut watcher = Watcher::default();
    let takes = |code: &str, size| {
        let mut state = state();
        (state.flows[1].code, state.flows[1].generation_size) = (code.into(), size);
        state
    };
    watcher.look(takes("rlnc", 16));
    assert_eq!(watcher.look(takes("rlnc", 3)), []);
    let changed = &watcher.look(takes("stream", 3))[0];
    assert_eq!(changed.text, "now stream, field 0; before rlnc, field 0");
}

#[test]
fn rate_is_told_when_it_stays_changed_by_more_than_half() {
    let mut watcher = Watcher::default();
    let at = |mbit| {
        let mut state = state();
        state.flows[0].neighbours[0].rate_mbit = mbit;
        state
    };
    (0..10).for_each(|_| assert_eq!(watcher.look(at(90.0)), []));
    // A short change is not reported, nor is one of less than half.
    (0..3).for_each(|_| assert_eq!(watcher.look(at(20.0)), []));
    (0..9).for_each(|_| assert_eq!(watcher.look(at(50.0)), []));
    let slow: Vec<_> = (0..9).flat_map(|_| watcher.look(at(20.0))).collect();
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!(slow[0].text, "20.0 Mbit/s to east:10.0.2.2, before 90.0");
    let fast: Vec<_> = (0..9).flat_map(|_| watcher.look(at(31.0))).collect();
    assert_eq!(fast.len(), 1, "{fast:?}");
}

#[test]
fn counter_that_begins_to_rise_is_told_once_until_it_was_calm() {
    let mut watcher = Watcher::default();
    let counted = |unknown_flow, failed| {
        let mut state = state();
        state.drops.insert("unknown_flow".into(), unknown_flow);
        state.flows[0].counters.insert("seal_failed".into(), failed);
        state
    };
    watcher.look(counted(7, 0));
    assert_eq!(watcher.look(counted(7, 0)), [], "what was before does not count");
    let begins = watcher.look(counted(19, 0));
    assert_eq!(begins.len(), 1, "{begins:?}");
    assert_eq!((begins[0].kind, begins[0].about.as_str()), (Kind::DropsRising, "unknown_flow"));
    assert!(begins[0].text.starts_with("unknown_flow begins to rise, 12 in a second ("));
    assert_eq!(watcher.look(counted(30, 0)), [], "the rise continues");
    // A cure of "Nothing, if few" ignores small counts.
    assert_eq!(watcher.look(counted(30, 50)), []);
    assert_eq!(watcher.look(counted(30, 500))[0].about, "seal_failed");
    (0..60).for_each(|_| assert_eq!(watcher.look(counted(30, 500)), []));
    assert_eq!(watcher.look(counted(31, 500)).len(), 1, "a rise after a calm minute is reported");
}

/// Fault 13: the event names the queue, and its interface, that a worker cannot keep up with.
#[test]
fn counter_of_sockets_that_begins_to_rise_names_queue_and_interface() {
    let mut watcher = Watcher::default();
    let mut look = |empty: [u64; 3], oversize: u64| {
        let mut state = state();
        let faults = [("rx_fill_ring_empty", empty.iter().sum()), ("tx_oversize", oversize)];
        state.links[0].faults = faults.map(|(name, count)| (name.to_owned(), count)).into();
        let of_queue = |count| BTreeMap::from([("rx_fill_ring_empty".to_owned(), count)]);
        watcher.note_queues(&[empty.map(of_queue).to_vec()]);
        watcher.look(state)
    };
    assert_eq!(look([0, 4, 0], 0), []);
    let begins = look([0, 9, 0], 3);
    let texts: Vec<&str> = begins.iter().map(|event| event.text.as_str()).collect();
    assert!(
        texts[1].starts_with("rx_fill_ring_empty begins to rise, 5 in a second ("),
        "{texts:?}"
    );
    assert!(texts[1].ends_with(") on queue 1 of eth1"), "{texts:?}");
    assert!(texts[0].starts_with("tx_oversize") && texts[0].ends_with(')'), "{texts:?}");
    (0..=CALM).for_each(|_| assert_eq!(look([0, 9, 0], 3), []));
    let begins = look([2, 9, 1], 3);
    assert!(begins[0].text.ends_with(" on queues 0, 2 of eth1"), "{begins:?}");
}
