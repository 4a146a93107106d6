//! Memory locking limit of the package's service under systemd; the caller's own limit is
//! unrelated.

use std::process::Command;

/// The unit of the package.
pub const UNIT: &str = "recoded.service";

/// A drop-in of Recoded, which follows those of the package in order of names.
const DROP_IN: &str = "/etc/systemd/system/recoded.service.d/memlock.conf";

/// Capabilities that lift the limit, as systemd writes them.
const UNBOUNDED: [&str; 2] = ["cap_ipc_lock", "cap_sys_resource"];

/// Bytes that the service may lock in memory; `None` if there is no limit, no such unit, or no
/// systemd.
pub fn memlock_bytes() -> Option<u64> {
    let properties = "--property=LoadState,LimitMEMLOCK,CapabilityBoundingSet";
    let output = Command::new("systemctl").args(["show", properties, UNIT]).output().ok()?;
    limit(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the limit from systemd's properties of the unit.
fn limit(said: &str) -> Option<u64> {
    let value = |key| said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let capabilities = value("CapabilityBoundingSet").unwrap_or_default();
    let is_bounded = !capabilities.split(' ').any(|it| UNBOUNDED.contains(&it));
    let is_there = value("LoadState") == Some("loaded");
    value("LimitMEMLOCK")?.parse().ok().filter(|_| is_there && is_bounded)
}

/// The command that removes the limit, from the next start on.
pub fn mend() -> Vec<String> {
    let folder = DROP_IN.rsplit_once('/').map_or("", |(folder, _)| folder);
    let script = format!(
        "mkdir -p {folder} && printf \"[Service]\\nLimitMEMLOCK=infinity\\n\" > {DROP_IN} && \
         systemctl daemon-reload"
    );
    vec!["sh".into(), "-c".into(), script]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_that_of_a_unit_that_is_there_and_may_not_pass_it() {
        let said = |limit: &str, state: &str, capabilities: &str| {
            format!(
                "LimitMEMLOCK={limit}\nCapabilityBoundingSet={capabilities}\nLoadState={state}\n"
            )
        };
        let packaged = "cap_net_admin cap_net_raw cap_bpf";
        assert_eq!(limit(&said("8388608", "loaded", packaged)), Some(8 << 20));
        assert_eq!(limit(&said("infinity", "loaded", packaged)), None);
        // Properties that systemd reports for an unknown unit.
        assert_eq!(limit(&said("8388608", "not-found", packaged)), None);
        assert_eq!(limit(&said("8388608", "loaded", "cap_net_admin cap_ipc_lock")), None);
        assert_eq!(limit(""), None);
    }
}
