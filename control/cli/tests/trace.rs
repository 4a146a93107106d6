//! `recodectl -f net.toml trace`: every hop of every path, from the nodes at both its ends.

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod boxes;
#[allow(dead_code)]
mod fixed;

use boxes::Boxes;
use recoded_api::v1::{Flow, FlowNeighbour, HopLoss, State};

/// States of three nodes of a line for a flow with this code, in both directions.
fn line_states(code: &str) -> [State; 3] {
    let counters = |counts: &[(&str, u64)]| {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let next = |at: &str, loss| FlowNeighbour {
        next_hop: at.into(),
        rate_mbit: 93.4,
        loss: Some(loss),
        round_trip_us: Some(20_400.0),
        queue_us: Some(1_200.0),
        ..FlowNeighbour::default()
    };
    let hop =
        |hop, loss, arrived| HopLoss { hop, loss, burst_mean: 1.5, arrived_theory: Some(arrived) };
    let is_stream = code == "stream";
    let rank = |rank| Some(rank).filter(|_| !is_stream);
    let flow = |role: &str| Flow { id: 1, role: role.into(), code: code.into(), ..Flow::default() };
    let source = Flow {
        neighbours: vec![next("wan:10.0.1.2", 0.1)],
        hops: vec![hop(0, 0.1, 0.93), hop(1, 0.05, 0.91)],
        counters: counters(&[("source_symbols", 1_000), ("lagged", 10)]),
        ..flow("source")
    };
    let relay = Flow {
        neighbours: vec![next("east:10.0.2.2", 0.05)],
        hops: vec![HopLoss { loss: 0.1, burst_mean: 1.5, ..HopLoss::default() }],
        rank_ratio: rank(0.9312),
        counters: counters(&[("innovative", 990)]),
        ..flow("relay")
    };
    let sink = Flow {
        rank_ratio: rank(0.9077),
        residual_loss: Some(0.02).filter(|_| is_stream),
        decode_delay_mean_us: Some(2_300.0),
        ..flow("sink")
    };
    let back = Flow { id: 2, role: "source".into(), code: code.into(), ..Flow::default() };
    let of = |flows| State { flows, ..fixed::state() };
    [of(vec![source]), of(vec![relay]), of(vec![sink, back])]
}

/// Ranks of generations where they are counted; for a stream, symbols not abandoned by nodes.
#[test]
fn trace_of_a_network_has_loss_delay_and_what_arrived_of_every_hop() {
    let boxes = Boxes::new();
    for (code, golden) in [("rlnc", "trace-network.txt"), ("stream", "trace-network-stream.txt")] {
        for (name, state) in ["a", "b", "c"].into_iter().zip(line_states(code)) {
            boxes.write(&format!("{name}/state.json"), &serde_json::to_string(&state).unwrap());
        }
        let (status, text) = boxes.recodectl("-f net.toml trace");
        assert_eq!(status, 0, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        fixed::assert_golden(golden, &text);
    }
    let (code, json) = boxes.json("trace 1");
    assert_eq!((code, json["paths"].as_array().map(Vec::len)), (0, Some(1)), "{json}");
    let hops = &json["paths"][0]["hops"];
    assert_eq!((&hops[0]["arrived"], &hops[1]["arrived"]), (&0.99.into(), &0.98.into()), "{json}");
    let (code, text) = boxes.recodectl("-f net.toml trace 7");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("this box has no flow 7: write one of 1, 2"), "{text}");
    boxes.write("b/stopped", "");
    let (code, text) = boxes.recodectl("-f net.toml trace 1");
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("FAIL b") && text.contains("no answer"), "{text}");
}
