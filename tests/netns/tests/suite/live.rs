//! Changes of a running daemon under traffic that lose no packet and replace no process: addresses
//! of tunnels, metrics.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::common;
use crate::reload::{DONE, REFUSED, line, probe, recodectl, rewrite, wait_for};
use recoded_netns::process::output;
use recoded_netns::{Bed, Daemon, Namespace};

const METRICS: &str = "127.0.0.1:9427";

/// Makes changes while a source sends 500 datagrams per second, and checks that all arrive at the
/// sink and no process was replaced.
fn costs_nothing(bed: &Bed, daemons: &[Daemon], seconds: u64, change: impl FnOnce()) {
    let pids = || daemons.iter().map(|it| it.dataplane_pid().unwrap()).collect::<Vec<_>>();
    let before = pids();
    let stream = probe(bed, seconds);
    std::thread::sleep(Duration::from_millis(500));
    change();
    let outcome = stream.finish().unwrap();
    println!(
        "{} sent, {} lost, overrun {}, longest gap {:.0} ms",
        outcome.sent,
        outcome.lost(),
        outcome.overrun,
        outcome.longest_gap_millis()
    );
    assert_eq!(outcome.lost(), outcome.overrun, "{} sent", outcome.sent);
    assert!(outcome.sent > 200 * seconds, "{} sent", outcome.sent);
    assert_eq!(pids(), before, "the same processes");
}

fn has(host: &Namespace, address: &str) -> bool {
    host.ip("address show dev rec0").unwrap().contains(&format!(" {address} "))
}

/// A reload that takes effect without cost.
fn reload(daemon: &Daemon, change: &str) {
    let (code, said) = recodectl(daemon, "reload --diff");
    assert_eq!(code, DONE, "{said}");
    assert!(said.contains(change) && said.contains("costs no packet"), "{said}");
    let (code, said) = recodectl(daemon, "reload");
    assert_eq!(code, DONE, "{said}\n{}", daemon.log());
}

#[test]
fn addresses_of_a_tunnel_come_and_go_live_and_cost_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    let (bed, mut daemons) = line();
    let [source, sink] = [bed.source(), bed.sink()];
    costs_nothing(&bed, &daemons, 5, || {
        for round in 0..3 {
            let added = |text: &str, own: &str, more: &str| {
                text.replace(
                    &format!("address = \"{own}\""),
                    &format!("address = [\"{own}\", \"{more}\"]"),
                )
            };
            let ends = [(&daemons[0], "10.99.0.1/24"), (&daemons[2], "10.99.0.2/24")];
            let files = ends.map(|(daemon, own)| {
                let more = own.replace("10.99", "10.98");
                let file = rewrite(daemon, |text| added(text, own, &more));
                reload(daemon, &more);
                file
            });
            assert!(has(source, "10.98.0.1/24") && has(sink, "10.98.0.2/24"), "{round}");
            assert!(has(source, "10.99.0.1/24") && has(sink, "10.99.0.2/24"), "{round}");
            assert!(common::answers(source, "10.98.0.2"), "{round}");
            let shown = daemons[0].show().unwrap().tunnels[0].addresses.clone();
            assert_eq!(shown, ["10.99.0.1/24", "10.98.0.1/24"]);
            for ((daemon, _), file) in ends.iter().zip(files) {
                rewrite(daemon, |_| file.clone());
                reload(daemon, "10.98.0.");
            }
            assert!(!has(source, "10.98.0.1/24") && !has(sink, "10.98.0.2/24"), "{round}");
        }
    });

    // An unconfirmed change is rolled back; the next process and supervisor keep a confirmed one.
    let more = |text: &str| {
        text.replace("address = \"10.99.0.1/24\"", "address = [\"10.99.0.1/24\", \"10.97.0.1/24\"]")
    };
    rewrite(&daemons[0], more);
    assert_eq!(recodectl(&daemons[0], "reload --confirm 1s").0, DONE);
    assert!(has(source, "10.97.0.1/24"));
    wait_for("it is taken back", &daemons[0], || !has(source, "10.97.0.1/24"));
    reload(&daemons[0], "10.97.0.1/24");
    source.ip("address del 10.97.0.1/24 dev rec0").unwrap();
    daemons[0].signal_dataplane(rustix::process::Signal::KILL).unwrap();
    wait_for("the address in the next process", &daemons[0], || has(source, "10.97.0.1/24"));
    let near = &mut daemons[0];
    near.wait_until_it_answers().unwrap();
    // The record follows within moments.
    std::thread::sleep(Duration::from_millis(500));
    near.kill_supervisor();
    let own = "address = [\"10.99.0.1/24\", \"10.97.0.1/24\"]";
    rewrite(near, |text| text.replace(own, "address = \"10.99.0.1/24\""));
    near.start_supervisor().unwrap();
    wait_for("the address goes", near, || !has(source, "10.97.0.1/24"));
    assert!(has(source, "10.99.0.1/24"));
}

/// The page of metrics, if it is served.
fn metrics(host: &Namespace, address: &str) -> Option<String> {
    let mut curl = host.command("curl");
    let curl: &mut Command = curl.args(["--silent", "--max-time", "2"]);
    let said = output(curl.arg(format!("http://{address}/metrics"))).ok()?;
    said.success.then_some(said.stdout)
}

#[test]
fn metrics_are_switched_on_and_off_live_and_cost_no_packet() {
    let Some(_turn) = common::daemons() else { return };
    let (bed, daemons) = line();
    let (relay, host) = (&daemons[1], &bed.hosts()[1]);
    let with = |address: &str| {
        let line = format!("[daemon]\nmetrics = \"{address}\"");
        move |text: &str| text.replacen("[daemon]", &line, 1)
    };
    costs_nothing(&bed, &daemons, 5, || {
        for round in 0..3 {
            assert_eq!(metrics(host, METRICS), None, "{round}");
            let before = rewrite(relay, with(METRICS));
            reload(relay, "metrics");
            let page = metrics(host, METRICS).expect("metrics are served");
            assert!(page.contains("recoded_"), "{page}");
            // Another port, and off.
            let other = "127.0.0.1:9428";
            rewrite(relay, |text| text.replace(METRICS, other));
            reload(relay, "metrics");
            assert_eq!(metrics(host, METRICS), None, "{round}");
            assert!(metrics(host, other).is_some(), "{round}");
            rewrite(relay, |_| before.clone());
            reload(relay, "metrics");
            assert_eq!(metrics(host, other), None, "{round}");
        }
    });

    // A port in use is refused, and the previous configuration stays active.
    let taken: SocketAddr = "127.0.0.1:9430".parse().unwrap();
    let before = rewrite(relay, with(METRICS));
    assert_eq!(recodectl(relay, "reload").0, DONE);
    let process = relay.dataplane_pid().unwrap();
    let _taken = host.inside(|| std::net::TcpListener::bind(taken).unwrap()).unwrap();
    rewrite(relay, |text| text.replace(METRICS, &taken.to_string()));
    let (code, said) = recodectl(relay, "reload");
    assert_eq!(code, REFUSED, "{said}");
    assert!(said.contains("cannot serve metrics at 127.0.0.1:9430"), "{said}");
    assert!(metrics(host, METRICS).is_some(), "{}", relay.log());
    assert_eq!(relay.dataplane_pid().unwrap(), process);

    // A process that dies leaves its port to the next one; an unconfirmed change is rolled back.
    rewrite(relay, |_| before.clone());
    assert_eq!(recodectl(relay, "reload").0, DONE);
    rewrite(relay, with(METRICS));
    assert_eq!(recodectl(relay, "reload --confirm 20s").0, DONE);
    relay.signal_dataplane(rustix::process::Signal::KILL).unwrap();
    wait_for("metrics of the next process", relay, || metrics(host, METRICS).is_some());
    assert_eq!(recodectl(relay, "undo").0, DONE);
    assert_eq!(metrics(host, METRICS), None);
}
