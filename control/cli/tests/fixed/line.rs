//! One path over two boxes and a relay, laptop - relay - server, as each of them shows it.

use recoded_api::v1::{
    Flow, FlowNeighbour, FlowUpstream, HopLoss, Link, Neighbour, Session, State, Tunnel,
};

const RELAY: &str = "wan:192.0.2.20";
const LAPTOP: &str = "wan:laptop";
const SERVER: &str = "lan:10.0.2.2";

fn neighbour(address: &str, name: &str) -> Neighbour {
    Neighbour {
        address: address.into(),
        name: name.into(),
        resolved: true,
        version: "0.1.0".into(),
        said_ago_seconds: Some(4.2),
        ..Neighbour::default()
    }
}

fn link(name: &str, local: &str, neighbour: Neighbour) -> Link {
    Link {
        name: name.into(),
        interface: name.into(),
        local: local.into(),
        state: "up".into(),
        mtu: 1500,
        socket_mode: "udp".into(),
        reason: "a neighbour roams, and AF_XDP pins addresses".into(),
        neighbours: vec![neighbour],
        // Packets of the first second, before the neighbour was known.
        faults: [("tx_no_neighbour".to_owned(), 17)].into(),
        ..Link::default()
    }
}

fn session(with: &str, name: &str) -> Session {
    Session {
        with: with.into(),
        name: name.into(),
        key: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".into(),
        age_seconds: Some(83.2),
        handshakes: 3,
        ..Session::default()
    }
}

fn flow(id: u64, role: &str) -> Flow {
    Flow {
        id,
        role: role.into(),
        code: "stream".into(),
        state: Some("up".into()),
        wire_mbit: Some(0.0),
        ..Flow::default()
    }
}

fn source(id: u64, next_hop: &str) -> Flow {
    Flow {
        tunnel: Some("rec0".into()),
        next_hops: vec![next_hop.into()],
        neighbours: vec![reported(next_hop)],
        goodput_mbit: Some(0.0),
        end: "server".into(),
        ..flow(id, "source")
    }
}

fn sink(id: u64, upstream: &str) -> Flow {
    Flow {
        tunnel: Some("rec0".into()),
        upstreams: vec![upstream.into()],
        state: Some("waiting".into()),
        goodput_mbit: Some(0.0),
        wire_mbit: None,
        code: String::new(),
        end: "server".into(),
        ..flow(id, "sink")
    }
}

fn relay_of(id: u64, upstream: &str, next_hop: &str) -> Flow {
    Flow {
        next_hops: vec![next_hop.into()],
        neighbours: vec![reported(next_hop)],
        upstreams: vec![upstream.into()],
        arrivals: vec![FlowUpstream {
            upstream: upstream.into(),
            received_ago_seconds: Some(0.4),
            ..FlowUpstream::default()
        }],
        ..flow(id, "relay")
    }
}

/// A next hop without reports: a stream sends keepalives, which have none.
fn reported(next_hop: &str) -> FlowNeighbour {
    FlowNeighbour { next_hop: next_hop.into(), rate_mbit: 20.0, ..FlowNeighbour::default() }
}

fn state(links: Vec<Link>, flows: Vec<Flow>, sessions: Vec<Session>) -> State {
    State {
        links,
        flows,
        sessions,
        tunnels: Vec::new(),
        config: "[daemon]\nprivate_key = \"/etc/recoded/private.key\"\n".into(),
        ..super::state()
    }
}

/// The laptop before the first packet.
pub fn idle() -> State {
    let tunnel = Tunnel {
        name: "rec0".into(),
        addresses: vec!["10.99.0.1/24".into(), "fd00:99::1/64".into()],
        mtu: 1426,
        mtu_configured: 1426,
        state: "present".into(),
        ..Tunnel::default()
    };
    let sessions = vec![session(RELAY, "relay"), session("flow 1", "server")];
    let flows = vec![source(1, RELAY), sink(2, RELAY)];
    let links = vec![link("wan", "198.51.100.7", neighbour("192.0.2.20", "relay"))];
    State { tunnels: vec![tunnel], ..state(links, flows, sessions) }
}

/// The laptop under traffic.
pub fn end() -> State {
    let mut state = idle();
    for flow in &mut state.flows {
        flow.state = Some("up".into());
        flow.goodput_mbit = Some(61.2);
        flow.wire_mbit = flow.wire_mbit.map(|_| 93.04);
        flow.residual_loss = Some(0.0001);
        let loss = |hop, loss| HopLoss { hop, loss, burst_mean: 1.2, ..HopLoss::default() };
        flow.hops = vec![loss(0, 0.099), loss(1, 0.143)];
    }
    let hop = &mut state.flows[0].neighbours[0];
    (hop.loss, hop.round_trip_us) = (Some(0.099), Some(2_310.0));
    hop.heard_ago_seconds = Some(0.02);
    state
}

/// The relay: the laptop roams, and has sent.
pub fn relay() -> State {
    let mut state = awaited();
    let laptop = &mut state.links[0].neighbours[0];
    (laptop.waits, laptop.said_ago_seconds) = (String::new(), Some(4.2));
    laptop.endpoint = "198.51.100.7:40017".into();
    state.sessions[0] = session(LAPTOP, "laptop");
    for flow in &mut state.flows {
        (flow.state, flow.waits) = (Some("up".into()), String::new());
        flow.wire_mbit = Some(87.6);
        flow.neighbours[0].loss = Some(0.099);
    }
    state
}

/// The relay before the laptop has sent.
pub fn awaited() -> State {
    let waits = "its address is known once it sends: see that recoded runs there";
    let laptop = Neighbour {
        waits: waits.into(),
        said_ago_seconds: None,
        version: String::new(),
        ..neighbour("laptop", "laptop")
    };
    let sessions = vec![
        Session { age_seconds: None, handshakes: 0, ..session(LAPTOP, "laptop") },
        session(SERVER, "server"),
    ];
    let mut flows = vec![relay_of(1, LAPTOP, SERVER), relay_of(2, SERVER, LAPTOP)];
    for flow in &mut flows {
        flow.arrivals.clear();
        (flow.state, flow.waits) = (Some("waiting".into()), format!("laptop: {waits}"));
    }
    let lan = link("lan", "10.0.2.1", neighbour("10.0.2.2", "server"));
    state(vec![link("wan", "192.0.2.20", laptop), lan], flows, sessions)
}
