//! A real Prometheus in the namespace of a host reads the metrics of a line that carries traffic,
//! with the package's rules.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common;
use recoded_netns::process::{Background, tail};
use recoded_netns::traffic::send_paced;
use recoded_netns::{Bed, Daemon, LinePlan, Loss, Namespace};

const DASHBOARD: &str = include_str!("../../../../control/daemon/metrics/dashboard.json");

const METRICS: &str = "127.0.0.1:9427";
const PROMETHEUS: &str = "127.0.0.1:9090";

/// A scrape a second, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn has_prometheus() -> bool {
    let is_there = Command::new("prometheus").arg("--version").output().is_ok();
    if !is_there {
        let reason = "`prometheus` is not installed (scripts/test installs it)";
        assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none(), "cannot run: {reason}");
        println!("skipped: {reason}");
    }
    is_there
}

/// Starts Prometheus on a host, with its data in `folder`.
fn prometheus(host: &Namespace, folder: &Path) -> Background {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../control/daemon/metrics/alerts.yml");
    let config = folder.join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [\"{rules}\"]\n\
         scrape_configs:\n  - job_name: recoded\n    static_configs: [{{ targets: [\"{METRICS}\"] }}]\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = host.command("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={PROMETHEUS}"));
    Background::start(&mut command, &folder.join("prometheus.log")).unwrap()
}

fn api(host: &Namespace, path: &str, query: &str) -> serde_json::Value {
    let mut curl = host.command("curl");
    curl.args(["-s", "--max-time", "10", "-G", "--data-urlencode", &format!("query={query}")]);
    let output = curl.arg(format!("http://{PROMETHEUS}/api/v1/{path}")).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// The values that a query has, once there are any that are right.
fn wait_for(bed: &Bed, query: &str, is_right: impl Fn(f64) -> bool) -> f64 {
    let begin = Instant::now();
    loop {
        let found = api(bed.source(), "query", query);
        let values = found["data"]["result"].as_array().cloned().unwrap_or_default();
        let values = values.iter().filter_map(|it| it["value"][1].as_str()?.parse().ok());
        if let Some(value) = values.clone().find(|value| is_right(*value)) {
            return value;
        }
        let log = fs::read_to_string(bed.directory().join("prometheus.log")).unwrap_or_default();
        assert!(begin.elapsed() < PATIENCE, "{query}: {found}\n{}", tail(&log));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Asks every query of the dashboard, of all instances, as Grafana does.
fn ask_dashboard(bed: &Bed) {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*"));
    let queries: Vec<String> = queries.collect();
    let mut answered = 0;
    for query in &queries {
        assert!(!query.contains('$'), "a variable that this test does not know: {query}");
        let found = api(bed.source(), "query", query);
        assert_eq!(found["status"], "success", "{query}: {found}");
        let values = found["data"]["result"].as_array().map_or(0, Vec::len);
        answered += usize::from(values > 0);
    }
    println!("{} queries of the dashboard, {answered} of them with values", queries.len());
    // Faults have values only where there are some.
    assert!(queries.len() > 50 && answered >= 3, "{answered} of {}", queries.len());
}

#[test]
fn prometheus_reads_a_running_line_and_its_rules_fire() {
    let Some(_turn) = common::daemons_beside() else { return };
    if !has_prometheus() {
        return;
    }
    let bed = common::bed(1, Loss::independent(0.05), 20.0);
    let plan = LinePlan { metrics: Some(METRICS), ..LinePlan::protected(1) };
    let mut daemons = Daemon::start_line(&bed, &plan).unwrap();
    let _prometheus = prometheus(bed.source(), bed.directory());
    let to = SocketAddr::from(([10, 99, 0, 2], 7000));
    assert_eq!(send_paced(bed.source(), to, 100, 100, 1000.0).unwrap(), 100);

    assert!(wait_for(&bed, "up", |up| up == 1.0) > 0.0);
    let counted = daemons[0].show().unwrap().flows[0].count("ingress_packets");
    let query = "recoded_flow_ingress_packets_total{flow=\"1\",role=\"source\"}";
    let read = wait_for(&bed, query, |packets| packets >= counted as f64);
    println!("{read} packets taken in, as Prometheus has it; the daemon said {counted}");
    wait_for(&bed, "recoded_link_up", |up| up == 1.0);
    wait_for(&bed, "scrape_samples_scraped", |samples| samples > 100.0);
    let seconds = wait_for(&bed, "scrape_duration_seconds", |seconds| seconds > 0.0);
    println!("a scrape took {} ms", seconds * 1e3);
    ask_dashboard(&bed);

    // A process that dies is replaced, and metrics continue; once the daemon is gone the alert
    // fires.
    daemons[0].signal_dataplane(rustix::process::Signal::KILL).unwrap();
    wait_for(&bed, "resets(recoded_uptime_seconds[15m])", |resets| resets >= 1.0);
    assert!(daemons[0].stop());
    wait_for(&bed, "up", |up| up == 0.0);
    wait_for(&bed, "ALERTS{alertname=\"RecodedDown\"}", |alert| alert == 1.0);
    let rules = api(bed.source(), "rules", "");
    let groups = rules["data"]["groups"].as_array().cloned().unwrap_or_default();
    let all: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array()).flatten().collect();
    let sick = all.iter().filter(|rule| rule["health"] == "err").count();
    assert!(all.len() > 50 && sick == 0, "{} rules, {sick} of them with errors", all.len());
}

/// By default only local users can read them, which a test of the configuration covers.
#[test]
fn log_says_that_everybody_can_read_metrics_at_an_address_that_others_reach() {
    let Some(_turn) = common::daemons_beside() else { return };
    let bed = common::bed(1, Loss::independent(0.0), 20.0);
    for (address, is_open) in [(METRICS, false), ("0.0.0.0:9427", true)] {
        let plan = LinePlan { metrics: Some(address), ..LinePlan::protected(1) };
        let daemons = Daemon::start_line(&bed, &plan).unwrap();
        let log = daemons[0].log();
        assert_eq!(
            log.contains("anyone who can reach this address can read them"),
            is_open,
            "{log}"
        );
    }
}
