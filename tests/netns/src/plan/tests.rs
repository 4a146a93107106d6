use super::*;
use recoded_api::keys::TABLES;

fn parsed(index: usize) -> toml::Table {
    let text = LinePlan::protected(3).config(index, "/run/x.sock");
    text.parse().expect("valid TOML")
}

#[test]
fn config_of_the_source_has_one_link_one_tunnel_and_both_roles() {
    let table = parsed(0);
    assert_eq!(table["link"].as_array().map(Vec::len), Some(1));
    assert_eq!(table["tunnel"][0]["address"].as_str(), Some("10.99.0.1/24"));
    assert_eq!(table["flow"][0]["role"].as_str(), Some("source"));
    assert_eq!(table["flow"][0]["next_hops"][0]["address"].as_str(), Some("10.77.1.2"));
    assert!(table["flow"][0].get("upstream").is_none());
    assert_eq!(table["flow"][1]["role"].as_str(), Some("sink"));
    assert_eq!(table["flow"][1]["upstream"]["address"].as_str(), Some("10.77.1.2"));
}

#[test]
fn config_of_a_relay_has_two_links_and_no_tunnel() {
    let table = parsed(1);
    assert_eq!(table["link"].as_array().map(Vec::len), Some(2));
    assert!(table.get("tunnel").is_none());
    assert_eq!(table["flow"][0]["role"].as_str(), Some("relay"));
    assert_eq!(table["flow"][0]["next_hops"][0]["address"].as_str(), Some("10.77.2.2"));
    assert_eq!(table["flow"][0]["upstream"]["address"].as_str(), Some("10.77.1.1"));
    assert_eq!(table["flow"][1]["next_hops"][0]["address"].as_str(), Some("10.77.1.1"));
}

#[test]
fn keys_of_a_code_stand_where_they_have_an_effect() {
    let code = CodePlan::Bats { block_symbols: 128, interleave: Some(3), adaptive: false };
    let mut plan = LinePlan::protected(2);
    plan.flows[0] = FlowPlan { code, ..plan.flows[0].clone() };
    let flow = |index| {
        let table: toml::Table = plan.config(index, "/run/x.sock").parse().expect("valid TOML");
        table["flow"][0].clone()
    };
    let (source, relay, sink) = (flow(0), flow(1), flow(2));
    assert_eq!(source["code"].as_str(), Some("bats"));
    assert_eq!(source["batch_size"].as_integer(), Some(16));
    assert_eq!(source["interleave"].as_integer(), Some(3));
    assert_eq!(relay["adaptive"].as_bool(), Some(false));
    assert!(relay.get("code").is_none() && source.get("adaptive").is_none());
    assert!(sink.get("code").is_none() && sink.get("block_symbols").is_none());
}

#[test]
fn open_loop_has_a_fixed_redundancy_at_the_source_unless_the_flow_has_its_own() {
    let mut plan = LinePlan::protected(1);
    plan.flows[0] = FlowPlan { code: CodePlan::OpenLoop, ..plan.flows[0].clone() };
    for (own, redundancy) in [(None, OPEN_LOOP_REDUNDANCY), (Some(2.0), 2.0)] {
        plan.flows[0].redundancy = own;
        let table: toml::Table = plan.config(0, "/run/x.sock").parse().expect("valid TOML");
        let flow = &table["flow"][0];
        assert_eq!(flow["code"].as_str(), Some("stream"));
        assert_eq!(flow["redundancy"].as_float(), Some(redundancy));
    }
}

/// The names above must be the daemon's: they are checked against its table of keys, by role.
#[test]
fn every_key_that_is_written_is_one_of_the_daemon() {
    let codes = [
        CodePlan::Auto,
        CodePlan::Stream,
        CodePlan::Interactive,
        CodePlan::Rlnc,
        CodePlan::Bats { block_symbols: 128, interleave: Some(3), adaptive: false },
        CodePlan::OpenLoop,
    ];
    for (code, index) in codes.into_iter().flat_map(|code| (0..3).map(move |at| (code, at))) {
        let mut plan = LinePlan { pace_mbit: Some(9.0), ..LinePlan::protected(2) };
        plan.memory = Some("64 MiB");
        plan.auth = Some(AuthPlan::new("full", 2));
        plan.tunnels[0].mtu = Some(1300);
        plan.flows[0] = FlowPlan {
            code,
            symbol_bytes: Some(1000),
            target_loss: Some(0.1),
            flush_timeout_us: Some(1),
            hold_timeout_us: Some(1),
            ..plan.flows[0].clone()
        };
        let text = plan.config(index, "/run/x.sock");
        let file: toml::Table = text.parse().expect("valid TOML");
        for section in TABLES {
            let Some(value) = file.get(section.section) else { continue };
            let tables = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            for table in tables.iter().filter_map(toml::Value::as_table) {
                let role = table.get("role").and_then(toml::Value::as_str);
                for name in table.keys() {
                    let key = section.find(name).unwrap_or_else(|| panic!("{name}: no key"));
                    let has = |role| key.roles.iter().any(|other| other.name() == role);
                    assert!(role.is_none_or(has), "{name} is no key of a {role:?}");
                }
            }
        }
    }
}

#[test]
fn config_of_the_sink_ends_the_flows() {
    let table = parsed(3);
    assert_eq!(table["flow"][0]["role"].as_str(), Some("sink"));
    assert_eq!(table["flow"][1]["role"].as_str(), Some("source"));
    assert_eq!(table["flow"][1]["next_hops"][0]["link"].as_str(), Some("west"));
}
