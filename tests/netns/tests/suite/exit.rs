//! A box that sends everything through another one: default routes into a tunnel, and packets of
//! links outside of it.
//!
//! ```text
//!  h0 laptop --- h1 exit (192.0.2.1, masquerade) --- h2, which knows no route to h0
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::boxes::start_in;
use crate::common;
use crate::reload::{DONE, recodectl};
use recoded_netns::{AuthPlan, Bed, Daemon, Loss, Namespace};

const THIRD: &str = "10.77.2.2";
/// An address of the exit, IPv6.
const THIRD_IPV6: &str = "2001:db8:77::1";
/// Where neighbours find the exit: beyond the default route of the laptop.
const EXIT: &str = "192.0.2.1";

/// The line in the file of the network.
const ROUTES: &str = "routes = [\"0.0.0.0/0\", \"::/0\"]";

/// Takes away all ways to the third host but the exit's own.
fn lay_out(bed: &Bed) {
    let [laptop, exit, third] = bed.hosts() else { panic!("three hosts") };
    for host in [laptop, exit] {
        host.sysctl("net.ipv6.conf.all.disable_ipv6", "0").unwrap();
        host.sysctl("net.ipv6.conf.default.disable_ipv6", "0").unwrap();
    }
    exit.ip(&format!("address add {THIRD_IPV6}/128 dev lo")).unwrap();
    exit.ip("address add 192.0.2.1/32 dev west").unwrap();
    laptop.ip("route delete 10.77.2.0/24").unwrap();
    laptop.ip("route add default via 10.77.1.2").unwrap();
    third.ip("route delete 10.77.1.0/24").unwrap();
    for command in [
        "add table ip recoded-nat",
        "add chain ip recoded-nat post { type nat hook postrouting priority 100 ; }",
        "add rule ip recoded-nat post ip saddr 10.99.0.0/24 oifname != rec0 masquerade",
    ] {
        exit.run("nft", command).unwrap();
    }
}

fn network(bed: &Bed) -> String {
    let keys = AuthPlan::new("full", 1);
    let this = |host: usize, more: &str| {
        let file = bed.directory().join(format!("key{host}"));
        fs::write(&file, keys.private(host)).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let (key, file) = (keys.public(host), file.display());
        format!("{{ key = \"{key}\", private_key = \"{file}\", {more} }}\n")
    };
    format!(
        "[boxes]\nlaptop = {}exit = {}[[path]]\nvia = [\"laptop\", \"exit\"]\n\
         {ROUTES}\n",
        this(0, "tunnel = [\"10.99.0.2/24\", \"fd99::2/64\"]"),
        this(1, "at = \"192.0.2.1\", tunnel = [\"10.99.0.1/24\", \"fd99::1/64\"]"),
    )
}

fn start(bed: &Bed, host: usize, text: &str, name: &str) -> Daemon {
    start_in(bed, host, text, vec![("RECODED_NAME", name.to_owned())])
}

fn rules(host: &Namespace) -> String {
    host.ip("rule show").unwrap() + &host.ip("-6 rule show").unwrap()
}

/// The interface of Linux's route to an address.
fn way(host: &Namespace, to: &str) -> String {
    let route = host.ip(&format!("route get {to}")).unwrap_or_else(|error| error.to_string());
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or(&route).to_owned()
}

#[test]
fn box_reaches_the_world_by_its_exit_alone_and_its_own_routes_return_at_a_stop() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(2, Loss::independent(0.02), 50.0);
    lay_out(&bed);
    let laptop = &bed.hosts()[0];
    let before = rules(laptop);
    let text = network(&bed);
    assert!(!common::answers(laptop, THIRD), "there is another way");
    let exit = start(&bed, 1, &text, "exit");
    let mut near = start(&bed, 0, &text, "laptop");
    for daemon in [&exit, &near] {
        daemon.wait_until_it_has_sessions().unwrap();
    }
    common::wait_for("the third host", &near, || common::answers(laptop, THIRD));
    common::wait_for("IPv6", &near, || common::answers(laptop, THIRD_IPV6));
    assert_eq!(way(laptop, THIRD), "rec0");
    assert_eq!(way(laptop, "10.77.1.2"), "east", "a more specific route of the host");
    assert_eq!(way(laptop, &format!("{EXIT} oif east")), "east", "a socket of the link");
    let (_, said) = recodectl(&exit, "--json doctor --seconds 1");
    assert!(said.contains("sysctl -w net.ipv6.conf.all.forwarding=1"), "{said}");
    assert!(!said.contains("ip_forward") && !said.contains("masquerade"), "{said}");

    // The laptop moves: another address and another default route.
    laptop.ip("address delete 10.77.1.1/24 dev east").unwrap();
    laptop.ip("address add 10.77.1.9/24 dev east").unwrap();
    laptop.ip("route replace default via 10.77.1.2").unwrap();
    common::wait_for("the new address", &near, || rules(laptop).contains("from 10.77.1.9 "));
    assert!(!rules(laptop).contains("from 10.77.1.1 "), "{}", rules(laptop));
    common::wait_for("the third host", &near, || common::answers(laptop, THIRD));

    // Nothing of a killed daemon keeps others from reaching the box; the next one continues.
    near.kill();
    assert_eq!(way(laptop, THIRD), "rec0", "nothing leaves in the clear");
    assert!(!common::answers(laptop, THIRD));
    assert_eq!(way(laptop, &format!("{EXIT} from 10.77.1.9")), "east", "answers to connections");
    near.start_supervisor().unwrap();
    near.wait_until_it_answers().unwrap();
    common::wait_for("the third host", &near, || common::answers(laptop, THIRD));

    // Without the line, live; and with it again, and a kill switch.
    let written = fs::read_to_string(near.config()).unwrap();
    let process = near.dataplane_pid().unwrap();
    fs::write(near.config(), written.replace(ROUTES, "routes = []")).unwrap();
    let (code, said) = recodectl(&near, "reload");
    assert_eq!(code, DONE, "{said}");
    assert_eq!(rules(laptop), before);
    assert_eq!(way(laptop, THIRD), "east");
    fs::write(near.config(), written.clone() + "kill_switch = true\n").unwrap();
    let (code, said) = recodectl(&near, "reload");
    assert_eq!(code, DONE, "{said}");
    assert_eq!(near.dataplane_pid().unwrap(), process, "{said}");
    common::wait_for("the kill switch", &near, || {
        let shown = |family: &str| laptop.ip(&format!("{family} route show table 9426")).unwrap();
        ["-4", "-6"].iter().all(|family| shown(family).contains("unreachable default"))
    });
    common::wait_for("the third host", &near, || common::answers(laptop, THIRD));
    assert!(near.stop(), "{}", near.log());
    assert!(!way(laptop, THIRD).contains("east"), "it may leave in the clear");
    assert_eq!(way(laptop, &format!("{EXIT} from 10.77.1.9")), "east");
    laptop.ip("route flush table 9426").unwrap();
    laptop.ip("-6 route flush table 9426").unwrap();
    assert_eq!(way(laptop, THIRD), "east");

    // A stop without it takes all away, those of the daemon before included.
    fs::write(near.config(), written).unwrap();
    near.start_supervisor().unwrap();
    near.wait_until_it_answers().unwrap();
    common::wait_for("the third host", &near, || common::answers(laptop, THIRD));
    assert!(near.stop(), "{}", near.log());
    assert_eq!(rules(laptop), before);
    assert_eq!(way(laptop, THIRD), "east");
}
