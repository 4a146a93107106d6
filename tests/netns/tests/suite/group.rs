//! An encrypted flow to two sinks behind a relay: both can read it, until one is removed from the
//! list.
//!
//! ```text
//!   h0 ── link 1 ── h1 ── link 2 ── h2
//!                    `─── link 3 ── h3      sinks with one address
//! ```

use std::fs;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common;
use crate::numbered::{receive, send};
use recoded_netns::process::output;
use recoded_netns::{AuthPlan, Bed, BedConfig, Daemon, LinePlan, LinkConfig, Loss};

/// As many milliseconds.
const PACKETS: u32 = 10_000;

/// The first packets go where streams are not open yet.
const SETTLED: usize = 1000;

/// Hosts of the flow: the bed's links from the source on.
const EDGES: [(usize, usize); 3] = [(0, 1), (1, 2), (1, 3)];

fn config(bed: &Bed, auth: &AuthPlan, host: usize, socket: &str, sinks: &[usize]) -> String {
    let key = AuthPlan::key_file(socket);
    let mut text =
        format!("[daemon]\nsocket = \"{socket}\"\nprivate_key = \"{key}\"\nframes = 8192\n");
    let (mut upstream, mut next_hops) = (String::new(), Vec::new());
    for (number, (from, to)) in
        (1..).zip(EDGES).filter(|(_, (from, to))| [*from, *to].contains(&host))
    {
        let (west, east) = (Bed::west_address(number), Bed::east_address(number));
        let [interface, interface_east] = bed.interfaces(number);
        let (interface, own, address, other) = match host == from {
            true => (interface, west, east, to),
            false => (interface_east, east, west, from),
        };
        let hop = format!("{{ link = \"l{number}\", address = \"{address}\" }}");
        text += &format!(
            "[[link]]\nname = \"l{number}\"\ninterface = \"{interface}\"\nlocal = \"{own}\"\n\
             [[neighbour]]\nlink = \"l{number}\"\naddress = \"{address}\"\npublic_key = \"{}\"\n",
            auth.public(other)
        );
        if host == from {
            next_hops.push(hop);
        } else {
            upstream = format!("upstream = {hop}\n");
        }
    }
    let list = |hosts: &[usize]| {
        let keys: Vec<_> = hosts.iter().map(|it| format!("\"{}\"", auth.public(*it))).collect();
        format!("[{}]", keys.join(", "))
    };
    let tunnel = |number: u8| {
        format!("[[tunnel]]\nname = \"rec0\"\naddress = \"10.99.0.{number}/24\"\nmtu = 1300\n")
    };
    let next_hops = format!("next_hops = [{}]\n", next_hops.join(", "));
    let source = auth.public(0);
    let (tunnel, flow) = match host {
        0 => (
            tunnel(1),
            format!(
                "role = \"source\"\ntunnel = \"rec0\"\n{next_hops}sink_keys = {}\n\
                 relay_keys = {}\n",
                list(sinks),
                list(&[1])
            ),
        ),
        1 => (
            String::new(),
            format!("role = \"relay\"\n{upstream}{next_hops}source_key = \"{source}\"\n"),
        ),
        _ => (
            tunnel(2),
            format!(
                "role = \"sink\"\ntunnel = \"rec0\"\n{upstream}edge_key = \"{source}\"\n\
                 edge_group = true\n"
            ),
        ),
    };
    text + &tunnel + "[[flow]]\nid = 1\n" + &flow
}

#[test]
fn sink_that_is_taken_away_reads_nothing_more_and_the_other_loses_nothing() {
    let Some(_turn) = common::daemons_beside() else { return };
    let link = LinkConfig::new(Loss::independent(0.02), 50.0);
    let links = EDGES.map(|(from, to)| (from, to, link));
    let bed = Bed::build(&BedConfig::graph(&links)).expect("the bed builds");
    let auth = AuthPlan::new("full", 3);
    let plan = LinePlan { auth: Some(auth.clone()), ..LinePlan::protected(1) };
    let start = |host| {
        Daemon::start_as(&bed, host, &plan, |socket| config(&bed, &auth, host, socket, &[2, 3]))
    };
    let daemons: Vec<Daemon> = (0..4).map(|host| start(host).unwrap()).collect();
    daemons.iter().for_each(|daemon| daemon.wait_until_it_has_sessions().unwrap());
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    let sinks = [2, 3].map(|host| receive(bed.hosts()[host].udp_socket(to).unwrap(), PACKETS));
    let sender = bed.hosts()[0].udp_socket(SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
    let begin = Instant::now();
    let sending = send(sender, to, PACKETS);
    sleep(Duration::from_secs(4));
    let socket = daemons[0].socket().to_string_lossy().into_owned();
    fs::write(daemons[0].config(), config(&bed, &auth, 0, &socket, &[2])).unwrap();
    let reloaded = output(&mut daemons[0].control(&["reload"])).unwrap();
    assert!(reloaded.success, "{} {}", reloaded.stdout, reloaded.stderr);
    let left = begin.elapsed().as_millis() as usize;
    let process = daemons[0].dataplane_pid().unwrap();
    let before = received(&daemons[3]);
    sending.join().unwrap();
    let more = received(&daemons[3]) - before;
    let [(stays, gap), (left_out, _)] = sinks.map(|sink| sink.join().unwrap());
    let lost = |came: &[bool]| came.iter().filter(|came| !**came).count();
    let all = PACKETS as usize;
    println!("left at {left} ms; {} of {all} lost, longest gap {gap:?}", lost(&stays[SETTLED..]));
    let last = left_out.iter().rposition(|came| *came).unwrap_or(0);
    println!("who left: {} lost before, the last is {last}", lost(&left_out[SETTLED..left]));
    println!("{more} packets came there since");
    assert!(lost(&stays[SETTLED..]) <= all / 500, "{}", lost(&stays[SETTLED..]));
    assert!(lost(&left_out[SETTLED..left]) <= all / 500);
    assert!(last >= left - 500 && last < left + 4000, "{last}");
    assert!(more > 200, "packets still come to who left: {more}");
    assert_eq!(daemons[0].dataplane_pid().unwrap(), process, "{}", reloaded.stdout);
    let state = daemons[2].show().unwrap();
    let verified: u64 = state.flows.iter().map(|flow| flow.count("tag_verified")).sum();
    assert!(verified > 5000 && state.flows[0].count("tag_refused") == 0, "{verified}");
    let relay = daemons[1].show().unwrap();
    assert!(relay.flows[0].count("tag_verified") > 5000);
}

/// Packets that a pipeline got.
fn received(daemon: &Daemon) -> u64 {
    daemon.show().unwrap().workers.iter().map(|worker| worker.received).sum()
}
