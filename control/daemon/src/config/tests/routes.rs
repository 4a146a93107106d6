//! `routes` of tunnels.

use super::*;

/// A source with this line in its tunnel.
fn with(line: &str) -> Result<Config, String> {
    let text = format!("{HEAD}{SOURCE}");
    let address = "[\"10.99.0.1/24\", \"fd99::1/64\"]\n";
    let text = text.replace("\"10.99.0.1/24\"\n", &format!("{address}{line}\n"));
    let parsed = Config::parse("relay.toml", &text, &|_| Some(1500));
    parsed.map(|(.., config)| config).map_err(|errors| errors.to_string())
}

#[test]
fn subnets_of_both_families_are_routed_and_written_out() {
    let config = with(r#"routes = ["10.61.0.0/16", "fd61::/48", "192.168.7.9/32"]"#).unwrap();
    let routes: Vec<String> =
        config.tunnels[0].routes.iter().map(|(net, bits)| format!("{net}/{bits}")).collect();
    assert_eq!(routes, ["10.61.0.0/16", "fd61::/48", "192.168.7.9/32"]);
    assert!(with("routes = []").unwrap().tunnels[0].routes.is_empty());
    let all = with("routes = [\"0.0.0.0/0\", \"::/0\"]").unwrap();
    let plan = all.tunnel_routes();
    assert!(plan.destinations["rec0"].len() == 2 && !plan.underlay.is_empty());
    let text = config.to_toml();
    let (.., again) = Config::parse("relay.toml", &text, &|_| Some(1500)).unwrap();
    assert_eq!(again.tunnels, config.tunnels, "{text}");
}

#[test]
fn wrong_routes_are_refused_in_words() {
    let many: Vec<String> = (0..257).map(|it| format!("\"10.60.{it}.0/32\"")).collect();
    let list = "it is a list of up to 256 subnets behind the other end, such as \
                [\"192.168.7.0/24\", \"fd00:7::/64\"]";
    let neighbour = "it contains the neighbour 10.0.2.2, whose packets would enter the tunnel: \
                     list subnets without it, or 0.0.0.0/0, which leaves neighbours outside";
    let cases = [
        ("routes = 3", format!("routes = 3 is not such a list: {list}")),
        (
            "routes = \"10.61.0.0/16\"",
            format!("routes = \"10.61.0.0/16\" is not such a list: {list}"),
        ),
        ("routes = [3]", format!("routes[0] = 3 is not a subnet: {list}")),
        ("routes = [\"10.61.0.1\"]", format!("routes[0] = \"10.61.0.1\" is not a subnet: {list}")),
        (
            "routes = [\"::/0\", \"10.61.0.0/33\"]",
            format!("routes[1] = \"10.61.0.0/33\" is not a subnet: {list}"),
        ),
        (
            "routes = [\"10.61.3.4/16\"]",
            "routes[0] = \"10.61.3.4/16\" is an address within a subnet: a subnet begins with its \
             first address: 10.61.0.0/16"
                .to_owned(),
        ),
        (
            "routes = [\"224.0.0.0/4\"]",
            "routes[0] = \"224.0.0.0/4\" is not unicast: multicast is not routed into tunnels"
                .to_owned(),
        ),
        (
            "routes = [\"10.61.0.0/16\", \"10.61.0.0/16\"]",
            "routes[1] = \"10.61.0.0/16\" is a repetition: each subnet is listed once".to_owned(),
        ),
        (
            "routes = [\"10.61.0.0/16\", \"10.0.0.0/8\"]",
            format!("routes[1] = \"10.0.0.0/8\" leads links into the tunnel: {neighbour}"),
        ),
        (
            "routes = [\"0.0.0.0/1\"]",
            format!("routes[0] = \"0.0.0.0/1\" leads links into the tunnel: {neighbour}"),
        ),
    ];
    for (line, said) in cases {
        assert_eq!(with(line).unwrap_err(), format!("relay.toml:12: tunnel rec0: {said}"));
    }
    let refused = with(&format!("routes = [{}]", many.join(", "))).unwrap_err();
    assert!(refused.contains("is not such a list"), "{refused}");
}

#[test]
fn two_tunnels_cannot_have_one_subnet() {
    let second = "routes = [\"10.61.0.0/16\"]\n[[tunnel]]\nname = \"rec1\"\naddress = \
                  \"10.98.0.1/24\"\nroutes = [\"10.61.0.0/16\"]";
    let rule = "is taken: each subnet is behind one tunnel";
    let said = format!("relay.toml:16: tunnel rec1: routes[0] = \"10.61.0.0/16\" {rule}");
    assert_eq!(with(second).unwrap_err(), said);
}

#[test]
fn routes_are_of_the_families_of_the_tunnel() {
    let text = format!("{HEAD}{SOURCE}").replace(
        "\"10.99.0.1/24\"\n",
        "\"10.99.0.1/24\"\nroutes = [\"10.61.0.0/16\", \"fd61::/48\"]\n",
    );
    let refused = Config::parse("relay.toml", &text, &|_| Some(1500)).unwrap_err().to_string();
    let rule = "the tunnel carries no IPv6: give it an IPv6 address, too";
    let said = "routes[1] = \"fd61::/48\" does not fit the tunnel";
    assert_eq!(refused, format!("relay.toml:12: tunnel rec0: {said}: {rule}"));
}
