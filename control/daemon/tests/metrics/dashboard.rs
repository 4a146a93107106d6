//! A dashboard for Grafana: panels by hand, and one panel of faults for each table of counters.

use crate::rules::{hold, unknown};
use recoded::metrics::names::{Form, GROUPS};
use serde_json::{Value, json};

const FILE: &str = "metrics/dashboard.json";

/// Title, unit, and queries with their legends.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Queries with their legends.
type Queries = Vec<(String, String)>;

/// Panels of two columns.
const PANELS: [Panel; 14] = [
    (
        "Goodput",
        "Bps",
        &[
            ("rate(recoded_flow_delivered_bytes_total{INSTANCE}[1m])", "flow {{flow}} delivered"),
            ("rate(recoded_flow_ingress_bytes_total{INSTANCE}[1m])", "flow {{flow}} taken in"),
        ],
    ),
    (
        "On the wire",
        "Bps",
        &[
            ("rate(recoded_link_tx_bytes_total{INSTANCE}[1m])", "{{link}} sent"),
            ("rate(recoded_link_rx_bytes_total{INSTANCE}[1m])", "{{link}} received"),
        ],
    ),
    (
        "Packets per source symbol",
        "none",
        &[
            ("recoded_flow_overhead_ratio{INSTANCE}", "flow {{flow}} {{role}}"),
            ("recoded_flow_overhead_theory_ratio{INSTANCE}", "flow {{flow}} theory"),
        ],
    ),
    (
        "Mean rank over size",
        "percentunit",
        &[
            ("recoded_flow_rank_ratio{INSTANCE}", "flow {{flow}} {{role}}"),
            ("recoded_flow_rank_theory_ratio{INSTANCE}", "flow {{flow}} theory"),
        ],
    ),
    (
        "Loss per hop",
        "percentunit",
        &[("recoded_flow_hop_loss_ratio{INSTANCE}", "flow {{flow}} hop {{hop}}")],
    ),
    (
        "Loss to next hops",
        "percentunit",
        &[("recoded_next_hop_loss_ratio{INSTANCE}", "flow {{flow}} {{next_hop}}")],
    ),
    (
        "Rate of next hops",
        "Bps",
        &[("recoded_next_hop_rate_bytes_per_second{INSTANCE}", "flow {{flow}} {{next_hop}}")],
    ),
    (
        "Delay to next hops",
        "s",
        &[
            (
                "recoded_next_hop_round_trip_seconds{INSTANCE}",
                "flow {{flow}} {{next_hop}} round trip",
            ),
            ("recoded_next_hop_queue_seconds{INSTANCE}", "flow {{flow}} {{next_hop}} in queues"),
        ],
    ),
    (
        "Next hops: silent, last heard",
        "s",
        &[
            ("recoded_next_hop_silent{INSTANCE}", "flow {{flow}} {{next_hop}} silent (1)"),
            ("recoded_next_hop_heard_seconds{INSTANCE}", "flow {{flow}} {{next_hop}} last heard"),
        ],
    ),
    (
        "Generations given up",
        "cps",
        &[("rate(recoded_flow_generations_failed_total{INSTANCE}[1m])", "flow {{flow}}")],
    ),
    (
        "Tunnels",
        "none",
        &[
            ("recoded_tunnel_up{INSTANCE}", "{{tunnel}} up (1)"),
            (
                "rate(recoded_tunnel_queue_delay_total{INSTANCE}[1m])",
                "{{tunnel}} dropped for delay",
            ),
        ],
    ),
    (
        "MTU of tunnels",
        "decbytes",
        &[
            ("recoded_tunnel_mtu_bytes{INSTANCE}", "{{tunnel}}"),
            ("recoded_tunnel_mtu_configured_bytes{INSTANCE}", "{{tunnel}} configured"),
        ],
    ),
    ("Age of keys", "s", &[("recoded_session_age_seconds{INSTANCE}", "{{with}}")]),
    ("Free frames", "none", &[("recoded_worker_free_frames{INSTANCE}", "worker {{worker}}")]),
];

/// Queries of drops: a panel for each table that has faults.
fn faults() -> Vec<(String, Queries)> {
    let mut panels = Vec::new();
    for group in GROUPS {
        let faults: Vec<_> = group.table.counters().filter(|it| it.is_fault()).collect();
        if faults.is_empty() {
            continue;
        }
        let queries = match group.form {
            Form::All(name, label) => {
                vec![(
                    format!("rate({name}_total{{INSTANCE}}[1m]) > 0"),
                    format!("{{{{{label}}}}}"),
                )]
            }
            Form::Each(_) => faults
                .iter()
                .map(|it| {
                    let query = format!("rate({}{{INSTANCE}}[1m]) > 0", group.selector(it));
                    (query, it.name.to_owned())
                })
                .collect(),
        };
        panels.push((format!("Faults of {}", group.table.owner), queries));
    }
    panels
}

fn panel(index: usize, title: &str, unit: &str, queries: &[(String, String)]) -> Value {
    let of_host = |query: &str| query.replace("{INSTANCE}", "{instance=~\"$instance\"}");
    let targets: Vec<Value> = (1..)
        .zip(queries)
        .map(|(id, (query, legend))| {
            json!({ "refId": format!("q{id}"), "expr": of_host(query), "legendFormat": legend })
        })
        .collect();
    json!({
        "id": index + 1,
        "type": "timeseries",
        "title": title,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "fieldConfig": { "defaults": { "unit": unit }, "overrides": [] },
        "gridPos": { "h": 8, "w": 12, "x": 12 * (index % 2), "y": 8 * (index / 2) },
        "targets": targets,
    })
}

fn dashboard() -> String {
    let mut panels = Vec::new();
    for (title, unit, queries) in PANELS {
        let queries: Vec<_> =
            queries.iter().map(|(query, legend)| ((*query).into(), (*legend).into())).collect();
        panels.push(panel(panels.len(), title, unit, &queries));
    }
    for (title, queries) in faults() {
        panels.push(panel(panels.len(), &title, "pps", &queries));
    }
    let variables = json!([
        { "name": "datasource", "type": "datasource", "query": "prometheus" },
        {
            "name": "instance",
            "type": "query",
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "query": "label_values(recoded_uptime_seconds, instance)",
            "refresh": 2,
            "multi": true,
            "includeAll": true,
        },
    ]);
    let dashboard = json!({
        "title": "Recoded",
        "uid": "recoded",
        "schemaVersion": 39,
        "tags": ["recoded"],
        "time": { "from": "now-1h", "to": "now" },
        "refresh": "15s",
        "templating": { "list": variables },
        "panels": panels,
    });
    serde_json::to_string_pretty(&dashboard).expect("JSON") + "\n"
}

#[test]
fn dashboard_follows_from_the_tables_and_names_metrics_that_exist() {
    let text = dashboard();
    assert_eq!(unknown(&text), [""; 0]);
    assert!(!text.contains("INSTANCE"));
    hold(FILE, &text);
}
