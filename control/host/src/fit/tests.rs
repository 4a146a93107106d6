use super::*;
use crate::firewall::{iptables, nft};
use crate::{Address, Face, Holder, ReturnPath, Surroundings, Tracking};

fn plan() -> HostPlan {
    let link = |name: &str, interface: &str, third| Link {
        name: name.into(),
        interface: interface.into(),
        local: Some([10, 0, third, 2].into()),
        neighbours: vec![[192, 0, 2, 1].into()],
        sockets: Sockets::Udp,
    };
    HostPlan {
        links: vec![link("dsl", "eth0", 1), link("lte", "eth1", 2)],
        networks: vec![Network {
            tunnel: "rec0".into(),
            address: [10, 99, 0, 1].into(),
            prefix: 24,
        }],
        port: Some(9426),
        is_running: true,
        ..HostPlan::default()
    }
}

fn facts() -> Facts {
    let face = |name: &str, index| Face { name: name.into(), index, ..Face::default() };
    let address = |index, third| Address { index, address: [10, 0, third, 2].into(), prefix: 24 };
    Facts {
        faces: vec![face("eth0", 2), face("eth1", 3)],
        addresses: vec![address(2, 1), address(3, 2)],
        ..Facts::default()
    }
}

fn found(plan: &HostPlan, surroundings: Surroundings) -> Vec<Finding> {
    let mut findings = Vec::new();
    judge(plan, &Facts { surroundings, ..facts() }, &mut findings);
    findings
}

fn text(findings: &[Finding]) -> String {
    let lines = findings
        .iter()
        .map(|it| format!("{} {}: {}: {}\n", it.level.name(), it.subject, it.cause, it.cure));
    lines.collect()
}

#[test]
fn host_without_obstacles_has_no_findings() {
    assert_eq!(found(&plan(), Surroundings::default()), []);
}

/// A macvlan and the interface below it, or two interfaces in one network.
#[test]
fn interface_that_answers_arp_for_a_link_is_found_unless_it_ignores_that() {
    let find = |changes: &[fn(&mut Facts)]| {
        let mut facts = facts();
        facts.faces.iter_mut().for_each(|face| (face.is_up, face.is_ethernet) = (true, true));
        facts.surroundings.arp_ignore = [("eth0".to_owned(), 0), ("eth1".to_owned(), 0)].into();
        changes.iter().for_each(|change| change(&mut facts));
        let mut findings = Vec::new();
        judge(&plan(), &facts, &mut findings);
        findings
    };
    assert_eq!(find(&[]), [], "two networks");
    for near in [(|facts| facts.faces[1].macvlan_parent = Some(2)) as fn(&mut Facts), |facts| {
        facts.addresses[1].prefix = 16
    }] {
        let findings = find(&[near]);
        assert_eq!(findings.len(), 1, "eth0 answers for itself there: {findings:?}");
        assert!(text(&findings).starts_with("warning link lte: eth0 is in the same network"));
        assert_eq!(findings[0].mend.join(" "), "sysctl -w net.ipv4.conf.all.arp_ignore=1");
    }
    let macvlan: fn(&mut Facts) = |facts| facts.faces[1].macvlan_parent = Some(2);
    let quiet: [fn(&mut Facts); 4] = [
        |facts| facts.faces[0].is_up = false,
        |facts| facts.faces[0].is_ethernet = false,
        |facts| *facts.surroundings.arp_ignore.get_mut("eth0").unwrap() = 1,
        |facts| facts.surroundings.arp_ignore.clear(),
    ];
    for (at, quiet) in quiet.into_iter().enumerate() {
        assert_eq!(find(&[macvlan, quiet]), [], "case {at}");
    }
}

/// Two uplinks to one hub: Linux sends to it through only one of them.
#[test]
fn strict_reverse_path_filter_is_found_on_the_link_without_the_route() {
    let path = |third| ReturnPath {
        neighbour: [192, 0, 2, 1].into(),
        local: [10, 0, third, 2].into(),
        index: 2,
    };
    let with = |value: u8| Surroundings {
        rp_filter: [("eth0".to_owned(), value), ("eth1".to_owned(), value)].into(),
        return_paths: vec![path(1), path(2)],
        ..Surroundings::default()
    };
    let findings = found(&plan(), with(STRICT));
    assert_eq!(findings.len(), 1, "{findings:?}");
    let text = text(&findings);
    assert!(text.starts_with("error link lte") && text.contains("is out of eth0"), "{text}");
    assert_eq!(findings[0].mend.join(" "), "sysctl -w net.ipv4.conf.eth1.rp_filter=2");
    assert_eq!(found(&plan(), with(2)), [], "loose");
    let mut xdp = plan();
    xdp.links[1].sockets = Sockets::Xdp;
    assert_eq!(found(&xdp, with(STRICT)), [], "AF_XDP is below the filter");
    xdp.links[1].sockets = Sockets::Either;
    assert_eq!(found(&xdp, with(STRICT))[0].level, Level::Warning);
}

#[test]
fn port_of_another_program_is_found_with_its_name() {
    let holder = |process| Surroundings {
        holders: vec![Holder { link: "dsl".into(), address: [0, 0, 0, 0].into(), process }],
        ..Surroundings::default()
    };
    let stopped = HostPlan { is_running: false, ..plan() };
    let text = |plan: &HostPlan, process| text(&found(plan, holder(process)));
    let openvpn = || Some(("openvpn".to_owned(), 77));
    for plan in [plan(), stopped.clone()] {
        let named = text(&plan, openvpn());
        assert!(named.contains("openvpn (process 77) has UDP port 9426 of 0.0.0.0"), "{named}");
        assert!(named.contains("kill 77"), "{named}");
    }
    assert!(text(&stopped, None).contains("ss -ulpn sport = :9426"));
    // Another daemon, or this one with another control socket.
    let daemon = found(&stopped, holder(Some((DATAPLANE_PROCESS.to_owned(), 77))));
    assert!(daemon.iter().all(|finding| finding.level == Level::Warning), "{daemon:?}");
    assert!(daemon.iter().any(|it| it.cause.contains("recoded-dp (process 77)")), "{daemon:?}");
}

#[test]
fn network_of_a_tunnel_that_holds_a_link_or_a_neighbour_is_found() {
    let with = |address: [u8; 4], prefix| {
        let networks = vec![Network { tunnel: "rec0".into(), address: address.into(), prefix }];
        text(&found(&HostPlan { networks, ..plan() }, Surroundings::default()))
    };
    let inside = with([10, 0, 1, 77], 28);
    assert!(inside.contains("10.0.1.77/28 overlaps with 10.0.1.2/24 of eth0"), "{inside}");
    assert!(with([10, 0, 0, 1], 8).contains("overlaps with 10.0.1.2/24"));
    let neighbour = with([192, 0, 2, 200], 24);
    assert!(neighbour.contains("the neighbour 192.0.2.1"), "{neighbour}");
    assert_eq!(with([10, 0, 3, 1], 24), "");
}

#[test]
fn full_table_of_connections_and_merging_below_xdp_are_found() {
    let with = |count| {
        let tracking = Some(Tracking { count, max: 1000 });
        found(&plan(), Surroundings { tracking, ..Surroundings::default() })
    };
    assert_eq!(with(500), []);
    let full = with(950);
    assert_eq!(full[0].mend.join(" "), "sysctl -w net.netfilter.nf_conntrack_max=4000");
    let merging = [("eth0".to_owned(), vec!["lro"])].into();
    let on = found(&plan(), Surroundings { merging, ..Surroundings::default() });
    assert_eq!(on[0].mend.join(" "), "ethtool -K eth0 lro off");
}

/// Rules in the output format of `nft -j list ruleset`.
fn ruleset(policy: &str, rules: &str) -> Vec<Chain> {
    let rules: String = rules
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|expr| {
            format!(
                r#",{{"rule": {{"family": "inet", "table": "filter", "chain": "input",
                    "handle": 1, "expr": [{expr}]}}}}"#
            )
        })
        .collect();
    let text = format!(
        r#"{{"nftables": [{{"metainfo": {{"version": "1.0.6"}}}},
            {{"table": {{"family": "inet", "name": "filter"}}}},
            {{"chain": {{"family": "inet", "table": "filter", "name": "input", "type": "filter",
              "hook": "input", "prio": 0, "policy": "{policy}"}}}},
            {{"chain": {{"family": "inet", "table": "filter", "name": "web"}}}}{rules}]}}"#
    );
    let chains = nft::parse(&text);
    assert_eq!(chains.len(), 2, "{text}");
    chains
}

const ESTABLISHED: &str = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}},
    "right": ["established", "related"]}}, {"accept": null}"#;

fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(chains: Vec<Chain>) -> String {
    let mut plan = plan();
    plan.links.truncate(1);
    text(&found(&plan, Surroundings { firewall: chains, ..Surroundings::default() }))
}

fn ports(right: &str) -> String {
    format!(
        r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "udp", "field": "dport"}}}},
            "right": {right}}}}}"#
    )
    .replace('\n', " ")
}

#[test]
fn policy_drop_without_an_accept_is_found_with_the_rule_to_type() {
    let ssh = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "tcp",
        "field": "dport"}}, "right": 22}}, {"accept": null}"#;
    let closed = said(ruleset("drop", &line(ssh)));
    assert!(
        closed.starts_with(
            "error link dsl: the firewall (inet filter input) drops UDP packets \
                                to port 9426, from 192.0.2.1, in by eth0"
        ),
        "{closed}"
    );
    assert!(closed.contains("nft insert rule inet filter input udp dport 9426 accept"), "{closed}");
    assert_eq!(said(ruleset("accept", "")), "");
    let after_ours = said(ruleset("drop", &line(ESTABLISHED)));
    assert!(after_ours.starts_with("warning link dsl"), "{after_ours}");
    assert!(after_ours.contains("until this host has sent some there"), "{after_ours}");
}

#[test]
fn rules_that_let_packets_pass_are_understood() {
    for right in ["9426", r#"{"set": [53, 9426]}"#, r#"{"range": [9000, 10000]}"#] {
        let rule = format!("{}, {{\"accept\": null}}", ports(right));
        assert_eq!(said(ruleset("drop", &rule)), "", "{right}");
    }
    for right in ["9427", r#"{"set": [53, 80]}"#] {
        let rule = format!("{}, {{\"accept\": null}}", ports(right));
        assert_ne!(said(ruleset("drop", &rule)), "", "{right}");
    }
    let interface = |name: &str| {
        format!(
            r#"{{"match": {{"op": "==", "left": {{"meta": {{"key": "iifname"}}}},
                "right": "{name}"}}}}, {{"accept": null}}"#
        )
        .replace('\n', " ")
    };
    for (name, passes) in [("eth0", true), ("eth*", true), ("eth1", false), ("lo", false)] {
        assert_eq!(said(ruleset("drop", &interface(name))).is_empty(), passes, "{name}");
    }
    let neighbours = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip",
        "field": "saddr"}}, "right": {"prefix": {"addr": "192.0.2.0", "len": 24}}}},
        {"accept": null}"#;
    assert_eq!(said(ruleset("drop", &line(neighbours))), "");
    let map = r#"{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set":
        [["established", {"accept": null}], ["new", {"accept": null}]]}}}"#;
    assert_eq!(said(ruleset("drop", &line(map))), "");
}

#[test]
fn rule_that_drops_is_found_before_one_that_accepts_and_not_after() {
    let drop = format!("{}, {{\"drop\": null}}", ports("9426"));
    let accept = format!("{}, {{\"accept\": null}}", ports("9426"));
    assert_ne!(said(ruleset("accept", &format!("{drop}\n{accept}"))), "");
    assert_eq!(said(ruleset("accept", &format!("{accept}\n{drop}"))), "");
    let elsewhere = format!("{}, {{\"jump\": {{\"target\": \"web\"}}}}\n{drop}", ports("9426"));
    assert_ne!(said(ruleset("accept", &elsewhere)), "", "an empty chain decides nothing");
}

/// A named set, or a match of another program, may accept the packet.
#[test]
fn rule_that_is_not_understood_gives_no_finding_where_it_may_accept() {
    let set = ports(r#""@allowed""#);
    assert_eq!(said(ruleset("drop", &format!("{set}, {{\"accept\": null}}"))), "");
    let strange = r#"{"xt": {"type": "match", "name": "u32"}}, {"accept": null}"#;
    assert_eq!(said(ruleset("drop", strange)), "");
    let limit = format!("{}, {{\"limit\": {{\"rate\": 5}}}}, {{\"drop\": null}}", ports("9426"));
    assert_eq!(said(ruleset("accept", &limit)), "", "it may drop, or not");
    for garbage in ["", "{", "[]", r#"{"nftables": 7}"#, r#"{"nftables": [{"rule": 1}, 2]}"#] {
        assert_eq!(nft::parse(garbage), [], "{garbage}");
    }
}

#[test]
fn rules_of_iptables_are_understood() {
    let with = |rules: &str| {
        let text = format!("-P INPUT DROP\n-P OUTPUT ACCEPT\n-N ufw-before-input\n{rules}");
        said(iptables::parse(&text, false))
    };
    let closed = with("-A INPUT -i lo -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT");
    assert!(closed.contains("iptables-legacy -I INPUT -p udp --dport 9426 -j ACCEPT"), "{closed}");
    assert_eq!(with("-A INPUT -p udp -m udp --dport 9426 -j ACCEPT"), "");
    assert_eq!(with("-A INPUT -p udp -m multiport --dports 53,9000:9999 -j ACCEPT"), "");
    assert_eq!(with("-A INPUT ! -i lo -j ACCEPT"), "");
    assert_ne!(with("-A INPUT -s 198.51.100.0/24 -j ACCEPT"), "");
    let commented = "-A INPUT -p tcp -m comment --comment \"see -j ACCEPT\" -m tcp -j ACCEPT";
    assert_ne!(with(commented), "");
    let related = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT";
    assert!(with(related).starts_with("warning"));
    let ufw = with("-A INPUT -j ufw-before-input\n-A ufw-before-input -i lo -j ACCEPT");
    assert!(ufw.contains("ufw allow 9426/udp"), "{ufw}");
    assert_eq!(with("-A INPUT -m u32 --u32 7 -j ACCEPT"), "", "not understood");
}
