use super::*;
use crate::fixed;
use recoded_api::v1::HopLoss;

/// Nodes in alphabetical order; the link of edge n has addresses 10.0.n.1 and .2.
fn network(edges: &[&str], ways: &str, receivers: usize) -> Network {
    let mut names: Vec<&str> = edges.iter().flat_map(|edge| edge.split('-')).collect();
    names.sort_unstable();
    names.dedup();
    let mut text = "auth = \"none\"\n[nodes]\n".to_owned();
    names.iter().for_each(|name| text += &format!("{name} = {{}}\n"));
    for (number, edge) in edges.iter().enumerate() {
        let (one, other) = edge.split_once('-').expect("two names");
        text += &format!(
            "[[link]]\n{one} = \"10.0.{number}.1 dev e{number}\"\n\
             {other} = \"10.0.{number}.2 dev e{number}\"\n"
        );
    }
    let tunnel: String = (0..receivers).map(|_| ", \"10.99.0.2/24\"").collect();
    text += &format!("[[path]]\nways = {ways}\ntunnel = [\"10.99.0.1/24\"{tunnel}]\n");
    recoded::network::parse("net.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn neighbour(edge: usize, rate_mbit: f64, loss: f64) -> FlowNeighbour {
    FlowNeighbour {
        next_hop: format!("e{edge}:10.0.{edge}.2"),
        rate_mbit,
        loss: Some(loss),
        round_trip_us: Some(20_400.0),
        ..FlowNeighbour::default()
    }
}

fn state(role: &str, neighbours: Vec<FlowNeighbour>, goodput_mbit: Option<f64>) -> State {
    let flow = Flow { id: 1, role: role.into(), neighbours, goodput_mbit, ..Flow::default() };
    // Another flow of the same neighbours.
    let other = Flow { id: 7, neighbours: vec![neighbour(0, 1.0, 0.5)], ..flow.clone() };
    State { flows: vec![other, flow], ..fixed::state() }
}

fn text(network: &Network, states: &[Option<&State>]) -> String {
    let text: String = graphs(network, states).iter().map(Graph::text).collect();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    text
}

#[test]
fn two_ways_are_drawn_with_what_both_carry() {
    let network = network(&["a-c", "a-b", "b-c"], "[[\"a\", \"c\"], [\"a\", \"b\", \"c\"]]", 1);
    let a = state("source", vec![neighbour(0, 100.0, 0.1), neighbour(1, 400.0, 0.0)], None);
    let mut b = state("relay", vec![neighbour(2, 50.0, 0.02)], None);
    let c = state("sink", Vec::new(), Some(128.0));
    assert_eq!(
        text(&network, &[Some(&a), Some(&b), Some(&c)]),
        "
path a -> c (flow 1)
a
├─ c  100.0 Mbit/s, 10.0 % lost, 20.4 ms
└─ b  400.0 Mbit/s, 0.0 % lost, 20.4 ms
   └─ c  50.0 Mbit/s, 2.0 % lost, 20.4 ms
c gets 128.0 of at most 139.0 Mbit/s (92 %), which a -> c, b -> c carry
"
    );
    b.flows[1].neighbours[0].silent = true;
    assert_eq!(
        text(&network, &[Some(&a), Some(&b), None]),
        "
path a -> c (flow 1)
a
├─ c  100.0 Mbit/s, 10.0 % lost, 20.4 ms
└─ b  400.0 Mbit/s, 0.0 % lost, 20.4 ms
   └─ c  does not answer
c: received rate unknown: at most 90.0 Mbit/s, which a -> c, b -> c carry
"
    );
}

#[test]
fn tree_has_a_line_for_each_receiver() {
    let ways = "[[\"a\", \"b\", \"d\"], [\"a\", \"b\", \"e\"], [\"a\", \"c\"]]";
    let network = network(&["a-b", "a-c", "b-d", "b-e"], ways, 3);
    let a = state("source", vec![neighbour(0, 90.0, 0.1), neighbour(1, 80.0, 0.5)], None);
    let b = state("relay", vec![neighbour(2, 95.0, 0.0), neighbour(3, 20.0, 0.2)], None);
    let mut c = state("sink", Vec::new(), Some(30.0));
    c.flows[1].hops = vec![HopLoss { loss: 0.9, burst_mean: 1.0, ..HopLoss::default() }];
    let sink = |goodput| state("sink", Vec::new(), Some(goodput));
    let (d, e) = (sink(40.0), sink(15.5));
    let shown = text(&network, &[Some(&a), Some(&b), Some(&c), Some(&d), Some(&e)]);
    assert_eq!(
        shown,
        "
path a -> d, e, c (flow 1)
a
├─ b  90.0 Mbit/s, 10.0 % lost, 20.4 ms
│  ├─ d  95.0 Mbit/s, 0.0 % lost, 20.4 ms
│  └─ e  20.0 Mbit/s, 20.0 % lost, 20.4 ms
└─ c  80.0 Mbit/s, 50.0 % lost, 20.4 ms
d gets 40.0 of at most 81.0 Mbit/s (49 %), which a -> b carries
e gets 15.5 of at most 16.0 Mbit/s (97 %), which b -> e carries
c gets 30.0 of at most 40.0 Mbit/s (75 %), which a -> c carries
"
    );
}

#[test]
fn ways_that_meet_are_drawn_once_and_unknown_rates_give_no_cut() {
    let edges = ["s-a", "s-b", "a-t", "a-c", "b-u", "b-c", "c-d", "d-t", "d-u"];
    let ways = "[[\"s\", \"a\", \"t\"], [\"s\", \"b\", \"u\"], \
                [\"s\", \"a\", \"c\", \"d\", \"t\"], [\"s\", \"b\", \"c\", \"d\", \"u\"]]";
    let network = network(&edges, ways, 2);
    let u = State { flows: Vec::new(), ..state("sink", Vec::new(), None) };
    let mut states = vec![None; 7];
    states[6] = Some(&u);
    assert_eq!(
        text(&network, &states),
        "
path s -> t, u (flow 1)
s
├─ a  s does not report it
│  ├─ t  a does not report it
│  └─ c  a does not report it
│     └─ d  c does not report it
│        ├─ t  d does not report it
│        └─ u  d does not report it
└─ b  s does not report it
   ├─ u  b does not report it
   └─ c  b does not report it, as above
t: received rate unknown; not all rates are known
u: received rate unknown; not all rates are known
"
    );
}
