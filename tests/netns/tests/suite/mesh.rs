//! Sixteen flows over a graph of twelve hosts: none starves.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common;
use recoded_netns::mesh::{Mesh, SHARING};
use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};

#[test]
fn each_of_sixteen_flows_over_twelve_hosts_arrives_whole() {
    let Some(_turn) = common::daemons() else { return };
    let mesh = Mesh::sixteen_flows();
    let bed = mesh.build(1).unwrap();
    let daemons = mesh.start(&bed).unwrap();
    let start = |(number, way): (usize, &Vec<usize>)| {
        let plan = ProbePlan {
            to: SocketAddr::from((Mesh::address(number), 7000)),
            payload_bytes: 800,
            packets_per_second: 60.0,
            length: Duration::from_secs(3),
            grace: Duration::from_secs(3),
            buffer_bytes: None,
        };
        Probe::start(&bed.hosts()[way[0]], &bed.hosts()[way[way.len() - 1]], &plan).unwrap()
    };
    let probes: Vec<Probe> = mesh.flows.iter().enumerate().map(start).collect();
    let outcomes: Vec<ProbeOutcome> =
        probes.into_iter().map(|probe| probe.finish().unwrap()).collect();
    assert_eq!(outcomes.len(), 16);
    for (outcome, way) in outcomes.iter().zip(&mesh.flows) {
        let (sent, lost, again) = (outcome.sent, outcome.lost(), outcome.duplicates);
        println!("{way:?}: {lost} of {sent} lost, {again} again");
        assert!(sent >= 100 && lost * 50 <= sent && again == 0, "{lost} of {sent} over {way:?}");
    }
    // Each of the source's four flows, in both directions.
    let shown = daemons[0].show().unwrap();
    assert_eq!(shown.flows.len(), 2 * SHARING);
}
