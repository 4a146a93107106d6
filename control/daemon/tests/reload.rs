//! Reloads the configuration, with a fake dataplane and a real keeper.

#![forbid(unsafe_code)]

mod common;

use common::{FILE, Served, changes};
use recoded_api::v1::Reloaded;
use recoded_pipeline::params::PeerId;
use std::collections::BTreeMap;
use std::fs;

/// The file with replacements, each required to have an effect.
fn file(replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(FILE.to_owned(), |text, (from, to)| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        changed
    })
}

fn write(served: &Served, text: &str) {
    fs::write(served.folder.path().join("test.toml"), text).expect("written");
}

fn costs(outcome: &Reloaded) -> Vec<(&str, &str)> {
    let changes = outcome.changes.iter();
    changes.map(|change| (change.cost.as_str(), change.what.as_str())).collect()
}

/// A relay of another flow between the neighbours of flow 2.
const RELAYED: &str = "
[[flow]]
id = 77
role = \"relay\"
upstream = { link = \"west\", address = \"10.0.1.1\" }
next_hops = [{ link = \"east\", address = \"10.0.2.2\" }]
";

#[test]
fn live_changes_are_one_snapshot_and_a_diff_is_none() {
    let served = Served::start();
    let mut client = served.client();
    let changed = file(&[("\ntarget_loss = 1e-4", "\ntarget_loss = 1e-3")]) + RELAYED;
    let compared = client.compare(&changed).expect("compared");
    assert_eq!(client.reload(true, None).expect("compared").changes, [], "the file is as before");
    write(&served, &changed);
    let diff = client.reload(true, None).expect("compared");
    assert_eq!(compared, diff, "a text is compared like the file");
    let long = changed.clone() + &"# as of a large network\n".repeat(8_000);
    assert_eq!(client.compare(&long).expect("compared").changes, diff.changes);
    let wrong = client.compare(&changed.replace("id = 77", "id = -1")).expect_err("refused");
    assert!(wrong.to_string().contains("id = -1 is out of range"), "{wrong}");
    let expected =
        [("live", "flow 1: target_loss = 0.0001 becomes 0.001"), ("live", "flow 77 is new")];
    assert_eq!(costs(&diff), expected);
    let line = changed.lines().position(|line| line == "target_loss = 1e-3").expect("it is") + 1;
    assert_eq!(diff.changes[0].line, Some(line as u64));
    assert!(!diff.applied && !diff.replaces);
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);

    let outcome = client.reload(false, None).expect("reloaded");
    assert_eq!(costs(&outcome), expected);
    assert_eq!((outcome.applied, outcome.edition, outcome.number), (true, 2, 2));
    let published = served.dataplane.with(|fake| fake.published.clone());
    let [snapshot] = &published[..] else { panic!("one snapshot, not {}", published.len()) };
    assert_eq!(snapshot.flows.last().map(|flow| flow.id), Some(77));
    assert!(client.config().expect("config").contains("target_loss = 0.001\n"));
    assert!(served.keeper.in_force().0.contains("id = 77"), "the next process has it");

    let again = client.reload(false, Some(9)).expect("nothing to do");
    assert_eq!((again.changes.len(), again.number, again.confirm_seconds), (0, 2, None));
    let undone = client.undo(None).expect("undone");
    assert_eq!(undone.changes.len(), 2);
    assert!(client.config().expect("config").contains("target_loss = 0.0001\n"));
    let causes = client.history().expect("history").entries;
    let causes: Vec<&str> = causes.iter().map(|entry| entry.cause.as_str()).collect();
    assert_eq!(causes, ["start", "reload", "undo"]);
}

/// `set --confirm`.
#[test]
fn change_of_a_flow_is_rolled_back_unless_it_is_confirmed() {
    let served = Served::start();
    let mut client = served.client();
    let changes = |value: &str| BTreeMap::from([("target_loss".to_owned(), value.to_owned())]);
    for seconds in [0, 24 * 3600 + 1, u64::MAX] {
        let refused = client.set_for(1, &changes("1e-3"), seconds).expect_err("no time");
        assert!(refused.to_string().contains("within 1 to 86400 seconds"), "{refused}");
    }
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
    client.set_for(1, &changes("1e-3"), 60).expect("changed");
    assert!(client.config().expect("config").contains("target_loss = 0.001\n"));
    let left = client.history().expect("history").confirm_seconds_left;
    assert!(left.is_some_and(|left| left > 50), "{left:?}");

    // One change waits at a time, and a refused one has no effect.
    let refused = client.set_for(1, &changes("1e-2"), 60).expect_err("another one waits");
    assert!(refused.to_string().contains("waits to be confirmed"), "{refused}");
    assert!(client.config().expect("config").contains("target_loss = 0.001\n"));
    assert!(client.reload(false, None).is_err());
    client.undo(None).expect("rolled back");
    assert!(client.config().expect("config").contains("target_loss = 0.0001\n"));
    assert!(served.keeper.in_force().0.contains("target_loss = 0.0001\n"), "the next process, too");

    client.set_for(1, &changes("1e-3"), 1).expect("changed");
    client.confirm().expect("confirmed");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert!(!served.keeper.is_overdue() && !served.keeper.take_back());
    client.set_for(1, &changes("1e-2"), 1).expect("changed");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert!(served.keeper.is_overdue(), "the supervisor rolls it back");
}

/// A new process numbers neighbours in the order that flows name them.
#[test]
fn neighbours_keep_their_numbers_when_flows_change_places() {
    let served = Served::start();
    let mut client = served.client();
    let (head, flows) = FILE.split_at(FILE.find("\n[[flow]]").expect("flows"));
    let (first, others) = flows.split_at(1 + flows[1..].find("\n[[flow]]").expect("another"));
    write(&served, &format!("{head}{others}{first}"));
    let outcome = client.reload(false, None).expect("reloaded");
    assert_eq!(costs(&outcome), [], "the order of flows means nothing");
    client.set(1, &changes(&[("redundancy", "2")])).expect("adopted");
    let published = served.dataplane.with(|fake| fake.published.clone());
    let flow = published.last().expect("published").flows.iter().find(|flow| flow.id == 1);
    assert_eq!(flow.expect("flow 1").next_hops, [PeerId(0)]);
}

#[test]
fn flow_between_other_neighbours_begins_anew_and_new_ones_need_a_process() {
    let served = Served::with(&(FILE.to_owned() + RELAYED));
    let mut client = served.client();
    let swapped = RELAYED.replace("next_hops = [{ link = \"east\", address = \"10.0.2.2\" }]", "X");
    let swapped = swapped
        .replace("upstream = { link = \"west\", address = \"10.0.1.1\" }", "Y")
        .replace('X', "next_hops = [{ link = \"west\", address = \"10.0.1.1\" }]")
        .replace('Y', "upstream = { link = \"east\", address = \"10.0.2.2\" }");
    write(&served, &(FILE.to_owned() + &swapped));
    let outcome = client.reload(false, None).expect("reloaded");
    assert!(outcome.changes.iter().all(|change| change.cost == "flow"), "{outcome:?}");
    let published = served.dataplane.with(|fake| fake.published.clone());
    let has = |at: usize| published[at].flows.iter().any(|flow| flow.id == 77);
    assert_eq!((published.len(), has(0), has(1)), (2, false, true));

    write(&served, &(FILE.to_owned() + &RELAYED.replace("10.0.2.2", "10.0.2.77")));
    let outcome = client.reload(true, None).expect("compared");
    assert!(outcome.replaces, "{outcome:?}");
    let outcome = client.reload(false, None).expect("handed over");
    assert!(outcome.applied && outcome.replaces);
    assert_eq!(served.dataplane.editions().len(), 2, "this process changes nothing");
    assert!(served.keeper.in_force().0.contains("10.0.2.77"));
}

#[test]
fn rate_and_engine_change_without_a_snapshot() {
    let rated = file(&[("\ninterface = \"eth1\"", "\nrate_mbit = 97.0\ninterface = \"eth1\"")]);
    let served = Served::with(&rated);
    let mut client = served.client();
    let changed = rated.replacen("rate_mbit = 97.0", "rate_mbit = 50.0", 1);
    write(&served, &changed.replacen("engine = \"auto\"", "engine = \"cpu\"", 1));
    let outcome = client.reload(false, None).expect("reloaded");
    assert!(outcome.changes.iter().all(|change| change.cost == "live"), "{outcome:?}");
    let (rates, engine) = served.dataplane.with(|fake| (fake.rates.clone(), fake.engine));
    assert_eq!((rates.len(), rates[0].1), (1, Some(50.0)));
    assert_eq!(engine, Some(recoded::config::EngineChoice::Cpu));
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
}

#[test]
fn what_workers_do_not_take_up_leaves_everything_as_it_was() {
    let served = Served::start();
    let mut client = served.client();
    let before = client.config().expect("config");
    write(&served, &file(&[("\nredundancy = \"auto\"", "\nredundancy = 1.5")]));
    served.dataplane.with(|fake| fake.refuses = true);
    assert_eq!(client.reload(false, None).expect_err("refused").to_string(), "the fake refuses");
    served.dataplane.with(|fake| (fake.refuses, fake.stuck) = (false, true));
    let stuck = client.reload(false, None).expect_err("stuck").to_string();
    assert!(stuck.contains("worker 1 is at edition 1"), "{stuck}");
    let saved = client.save(1, &changes(&[("redundancy", "1.25")])).expect_err("changed file");
    assert!(saved.to_string().contains("was changed since"), "{saved}");
    write(&served, FILE);
    client.save(1, &changes(&[("redundancy", "1.25")])).expect_err("stuck");
    let text = fs::read_to_string(served.folder.path().join("test.toml")).expect("file");
    assert_eq!(text, FILE, "the file is as it was");
    assert_eq!(client.config().expect("config"), before);
    let last = served.dataplane.with(|fake| fake.published.last().cloned()).expect("again");
    assert_eq!(last.flows[0].redundancy, recoded_pipeline::params::Redundancy::Auto);
    for wrong in [Some(0), Some(86_401)] {
        let refused = client.reload(false, wrong).expect_err("no time").to_string();
        assert!(refused.contains("1 to 86400 seconds"), "{refused}");
    }
}

#[test]
fn saved_change_is_in_force_and_in_the_file_with_its_comments() {
    let served = Served::start();
    let mut client = served.client();
    let both = changes(&[("code", "rlnc"), ("generation_size", "64")]);
    client.save(1, &both).expect("saved");
    let text = fs::read_to_string(served.folder.path().join("test.toml")).expect("file");
    let comments = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
    assert!(comments(&text) + 8 > comments(FILE), "comments of keys that stay are kept");
    assert!(text.contains("\ncode = \"rlnc\"") && text.contains("\ngeneration_size = 64"));
    let outcome = client.reload(false, None).expect("the file is the active configuration");
    assert_eq!(costs(&outcome), []);
    let wrong = client.save(1, &changes(&[("generation_size", "300")])).expect_err("rule");
    assert!(wrong.to_string().contains("1 to 256 symbols"), "{wrong}");
    let unknown = client.save(9, &changes(&[("repair", "false")])).expect_err("no flow");
    assert!(unknown.to_string().contains("no flow 9 here"), "{unknown}");
}

#[test]
fn another_socket_is_refused_with_the_line_and_links_are_not_changed_by_this_process() {
    let served = Served::start();
    let mut client = served.client();
    let ported = file(&[("\nport = 9426", "\nport = 9427")]).replace("\"rec0\"", "\"rec9\"");
    write(&served, &ported);
    let outcome = client.reload(true, None).expect("compared");
    let restarts = costs(&outcome).iter().filter(|(cost, _)| *cost == "restart").count();
    assert!(restarts == 1 && outcome.replaces, "{outcome:?}");
    write(&served, &ported.replacen("recoded.sock\"", "other.sock\"", 1));
    let refused = client.reload(false, None).expect_err("refused").to_string();
    assert!(refused.contains("other.sock\""), "{refused}");
    assert!(refused.contains("a running daemon keeps its control socket"), "{refused}");
    assert!(!refused.contains("port"), "{refused}");
    assert!(refused.ends_with("nothing was changed"), "{refused}");
    assert_eq!(served.dataplane.editions(), [0_u64; 0]);
}

/// A change of the configuration appears in the events, with its content.
#[test]
fn changes_of_the_configuration_are_events() {
    let served = Served::start();
    let mut client = served.client();
    assert_eq!(client.events(0).expect("answered").events, []);
    client.set(1, &changes(&[("target_loss", "1e-3")])).expect("set");
    write(&served, &file(&[("\ntarget_loss = 1e-4", "\ntarget_loss = 1e-2")]));
    client.reload(false, Some(60)).expect("reloaded");
    client.confirm().expect("confirmed");
    client.reload(false, None).expect("nothing changes");
    client.undo(None).expect("undone");
    let told = client.events(0).expect("answered");
    let kinds: Vec<&str> = told.events.iter().map(|event| event.kind.as_str()).collect();
    let expected = ["config_applied", "config_applied", "config_confirmed", "config_undone"];
    assert_eq!(kinds, expected);
    let text = "number 2 is active (set): flow 1: target_loss = 0.0001 becomes 0.001";
    assert_eq!(told.events[0].text, text);
    assert_eq!((told.newest, client.events(3).expect("answered").events.len()), (4, 1));
    assert_eq!(client.events(u64::MAX).expect("answered").events, []);
}

#[test]
fn addresses_of_a_tunnel_and_metrics_cost_nothing_where_the_supervisor_can_change_them_alone() {
    let served = Served::start();
    let mut client = served.client();
    let mut cost = |text: &str| {
        write(&served, text);
        let outcome = client.reload(true, None).expect("compared");
        let [change] = &outcome.changes[..] else { panic!("{outcome:?}") };
        change.cost.clone()
    };
    let address = "\naddress = \"10.99.0.1/24\"";
    let other = |list: &str| file(&[(address, &format!("\naddress = {list}"))]);
    assert_eq!(cost(&other("[\"10.99.0.1/24\", \"10.98.0.1/24\"]")), "live");
    assert_eq!(cost(&other("\"10.98.0.1/24\"")), "live");
    // The least MTU differs, and IPv6 is enabled when the tunnel is created.
    assert_eq!(cost(&other("[\"10.99.0.1/24\", \"fd00:99::1/64\"]")), "gap");
    let metrics = |line: &str| file(&[("#metrics = \"127.0.0.1:9427\"", line)]);
    assert_eq!(cost(&metrics("metrics = \"127.0.0.1:9427\"")), "live");

    // This process still listens on the same port.
    let served = Served::with(&metrics("metrics = \"127.0.0.1:9427\""));
    let mut client = served.client();
    let mut cost = |line: &str| {
        write(&served, &metrics(line));
        let outcome = client.reload(true, None).expect("compared");
        let costs: Vec<String> = outcome.changes.iter().map(|it| it.cost.clone()).collect();
        costs.join(" ")
    };
    assert_eq!(cost("metrics = \"0.0.0.0:9427\""), "gap");
    assert_eq!(cost("metrics = \"127.0.0.1:9428\""), "live");
    assert_eq!(cost("#"), "live");
}

/// A hub with `clients` of `tunnels` clients, each with a flow in each direction.
fn hub(tunnels: usize, clients: usize) -> String {
    let mut text = "[[link]]\nname = \"l\"\ninterface = \"missing0\"\n".to_owned();
    for client in 0..tunnels {
        let name = format!("rec{client}");
        text += &format!("[[tunnel]]\nname = \"{name}\"\naddress = \"10.99.{client}.1/24\"\n");
        let place = format!("{{ link = \"l\", address = \"10.1.{client}.2\" }}");
        let flow = |id: usize| format!("[[flow]]\nid = {id}\ntunnel = \"{name}\"\n");
        if client < clients {
            text += &format!(
                "{}role = \"source\"\nnext_hops = [{place}]\n{}role = \"sink\"\n\
                 upstream = {place}\n",
                flow(2 * client),
                flow(2 * client + 1),
            );
        }
    }
    text
}

/// The default of `memory` follows the number of tunnels. A client less at a hub once restarted
/// the process, for a smaller budget and other windows.
#[test]
fn default_memory_stays_when_flows_end_and_a_written_one_changes() {
    let served = Served::with(&hub(120, 120));
    let mut client = served.client();
    let memory = |text: &str| {
        let mut lines = text.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("memory = ")).expect("a budget")
    };
    let before = memory(&client.config().expect("config"));
    if before == "memory = \"512 MiB\"" {
        println!("skipped: this box has less than 2 GiB");
        return;
    }
    let fewer = hub(120, 40);
    write(&served, &fewer);
    let outcome = client.reload(false, None).expect("reloaded");
    assert_eq!(outcome.changes.len(), 160, "only flows: {:?}", outcome.changes);
    assert!(costs(&outcome).iter().all(|(cost, _)| *cost == "live"), "{:?}", outcome.changes);
    assert!(outcome.applied && !outcome.replaces);
    assert_eq!(memory(&client.config().expect("config")), before);
    assert_eq!(memory(&served.keeper.in_force().0), before);
    assert_eq!(client.reload(true, None).expect("compared").changes, [], "it is as the file");
    write(&served, &format!("[daemon]\nmemory = \"512 MiB\"\n{fewer}"));
    let diff = client.reload(true, None).expect("compared");
    assert!(costs(&diff).iter().any(|(cost, what)| *cost == "gap" && what.contains("memory")));
}
