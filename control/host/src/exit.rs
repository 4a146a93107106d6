//! Conditions for an exit. Other hosts send to any destination through it: it forwards their
//! packets, and translates their source addresses, since no router knows those of tunnels.

use crate::facts::Facts;
use crate::finding::{by, error, warning};
use crate::{Exit, Finding, HostPlan};
use ipnet::IpNet;

/// Names of the families as nft has them, and their settings of forwarding.
const FAMILIES: [(&str, &str, &str); 2] =
    [("IPv4", "ip", "net.ipv4.ip_forward"), ("IPv6", "ip6", "net.ipv6.conf.all.forwarding")];

pub fn judge(plan: &HostPlan, facts: &Facts, findings: &mut Vec<Finding>) {
    for Exit { tunnel, families } in &plan.exits {
        for (family, (name, table, setting)) in FAMILIES.into_iter().enumerate() {
            if !families[family] {
                continue;
            }
            let subject = format!("tunnel {tunnel}");
            if facts.surroundings.forwards[family] == Some(false) {
                let command = format!("sysctl -w {setting}=1");
                let cause = format!(
                    "it is an exit for {name}, and this host does not forward packets of others"
                );
                let cure = format!("let it ({command}, and in /etc/sysctl.d for the next boot)");
                findings.push(by(error(subject.clone(), cause, cure), &command));
            }
            if facts.surroundings.translates == Some(false) {
                let networks = plan.networks.iter().filter(|it| it.tunnel == *tunnel);
                let mut networks = networks.filter(|it| it.address.is_ipv4() == (family == 0));
                let network = networks.next().and_then(|network| {
                    Some(IpNet::new(network.address, network.prefix).ok()?.trunc().to_string())
                });
                let network = network.unwrap_or_else(|| "NETWORK".to_owned());
                let cause = format!(
                    "it is an exit for {name}, and this host translates no addresses: routers \
                     have no route to {network}"
                );
                let cure = format!(
                    "unless a router has such a route, add a masquerade: nft add table {table} \
                     recoded-nat; nft 'add chain {table} recoded-nat post {{ type nat hook \
                     postrouting priority 100; }}'; nft add rule {table} recoded-nat post {table} \
                     saddr {network} oifname != {tunnel} masquerade"
                );
                findings.push(warning(subject, cause, cure));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Network, Surroundings};

    #[test]
    fn exit_forwards_and_translates_or_the_commands_are_named() {
        let network = |address: &str, prefix| Network {
            tunnel: "rec0".into(),
            address: address.parse().unwrap(),
            prefix,
        };
        let plan = HostPlan {
            networks: vec![network("10.99.0.1", 24), network("fd99::1", 64)],
            exits: vec![Exit { tunnel: "rec0".into(), families: [true, true] }],
            ..HostPlan::default()
        };
        let found = |forwards, translates| {
            let surroundings = Surroundings { forwards, translates, ..Surroundings::default() };
            let mut findings = Vec::new();
            judge(&plan, &Facts { surroundings, ..Facts::default() }, &mut findings);
            findings
        };
        assert_eq!(found([Some(true); 2], Some(true)), []);
        assert_eq!(found([None; 2], None), [], "nothing is known");
        let off = found([Some(false); 2], Some(true));
        assert_eq!(off[0].mend.join(" "), "sysctl -w net.ipv4.ip_forward=1");
        assert_eq!(off[1].mend.join(" "), "sysctl -w net.ipv6.conf.all.forwarding=1");
        let missing = found([Some(true); 2], Some(false));
        for (finding, rule) in missing.iter().zip([
            "nft add rule ip recoded-nat post ip saddr 10.99.0.0/24 oifname != rec0 masquerade",
            "nft add rule ip6 recoded-nat post ip6 saddr fd99::/64 oifname != rec0 masquerade",
        ]) {
            assert!(finding.cure.contains(rule), "{finding:?}");
        }
    }
}
