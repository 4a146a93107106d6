//! Checks the unit files with systemd's tools, and the examples in the package.

#![forbid(unsafe_code)]

use std::process::Command;

/// Units of the daemon and of the fleet agent.
const UNITS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/recoded.service"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/recoded-agent.service"),
];

/// Largest exposure of the service, by systemd's measure from 0 to 10.
const EXPOSURE_MAX: f64 = 3.0;

/// Handlers that run after a box received another configuration.
const HANDLERS: &str = include_str!("../package/examples/ansible/roles/recoded/handlers/main.yml");

/// Messages of `recodectl reload`.
const RELOAD: &str = include_str!("../../cli/src/reload.rs");

/// Prints why a test is skipped; fails if all tests must run.
fn skipped(reason: &str) {
    assert!(std::env::var_os("RECODED_REQUIRE_ALL").is_none_or(|all| all != "1"), "{reason}");
    println!("skipped: {reason}");
}

/// The output of `systemd-analyze`; `None`, with the reason printed, if it is not available.
fn analyze(arguments: &[&str], unit: &str) -> Option<String> {
    let Ok(output) = Command::new("systemd-analyze").args(arguments).arg(unit).output() else {
        skipped("systemd-analyze is not installed");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn units_leave_services_little() {
    for unit in UNITS {
        let arguments = ["security", "--offline=true", "--no-pager"];
        let Some(text) = analyze(&arguments, unit) else { return };
        let line = text.lines().find(|line| line.contains("Overall exposure level"));
        let level =
            line.and_then(|line| line.split(": ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
        let level = level.unwrap_or_else(|| panic!("no exposure level in {text}"));
        println!("{unit}: exposure {level}");
        assert!(level <= EXPOSURE_MAX, "{unit}: {text}");
    }
}

/// `systemctl reload` succeeded in any case: a signal has no reply.
#[test]
fn reload_of_the_unit_fails_where_the_file_is_refused() {
    let unit = std::fs::read_to_string(UNITS[0]).expect("the unit");
    let reload = unit.lines().find_map(|line| line.strip_prefix("ExecReload="));
    // The command ends with an exit code: `tests/netns`, suite `reload`.
    assert_eq!(reload, Some("/usr/bin/recodectl reload"));
}

/// In addition to the process's own measures (`sandbox.rs`: no core dumps).
#[test]
fn memory_of_the_daemon_reaches_no_disk() {
    let unit = std::fs::read_to_string(UNITS[0]).expect("the unit");
    for word in ["LimitCORE=0", "MemorySwapMax=0", "NoNewPrivileges=yes"] {
        assert!(unit.lines().any(|line| line == word), "{word}");
    }
}

#[test]
fn units_have_no_word_that_systemd_ignores() {
    for unit in UNITS {
        let Some(text) = analyze(&["verify"], unit) else { return };
        // Neither the programs nor their manual pages are installed where this runs.
        let name = unit.rsplit('/').next().expect("a name");
        let ours = text.lines().filter(|line| line.contains(name));
        let is_missing =
            |line: &str| line.contains("is not executable") || line.contains("Command 'man ");
        let wrong: Vec<&str> = ours.filter(|line| !is_missing(line)).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Additions to the unit of the daemon in the examples.
#[test]
fn examples_of_additions_to_the_unit_have_no_word_that_systemd_ignores() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/package/examples/systemd");
    let complaints = |name: &str, more: &str| {
        let folder = tempfile::tempdir().expect("folder");
        let unit = folder.path().join("recoded.service");
        let beside = folder.path().join("recoded.service.d");
        std::fs::copy(UNITS[0], &unit).expect("copied");
        std::fs::create_dir(&beside).expect("folder");
        let text = std::fs::read_to_string(format!("{examples}/{name}")).expect("an example");
        std::fs::write(beside.join(name), text + more).expect("written");
        let text = analyze(&["verify"], &unit.display().to_string())?;
        let ours = text.lines().filter(|line| line.contains(name));
        Some(ours.map(str::to_owned).collect::<Vec<_>>())
    };
    let entries = std::fs::read_dir(examples).expect("folder");
    let names = entries.map(|entry| entry.expect("entry").file_name().into_string().expect("name"));
    let names: Vec<String> = names.collect();
    assert!(names.contains(&"own-user.conf".into()) && names.contains(&"netns.conf".into()));
    for name in names {
        let Some(found) = complaints(&name, "") else { return };
        assert!(found.is_empty(), "{found:?}");
        let found = complaints(&name, "Colour=3\n").expect("as before");
        assert!(found.iter().any(|line| line.contains("Colour")), "systemd did not read {name}");
    }
}

/// The role depends on words in the output of `recodectl reload`, which must contain them.
#[test]
fn ansible_role_knows_the_words_of_reload() {
    let quoted: Vec<&str> = HANDLERS.lines().filter_map(|line| line.split('\'').nth(1)).collect();
    assert_eq!(quoted, ["nothing to change", "rolling back in"]);
    for words in quoted {
        assert!(RELOAD.contains(words), "{words}");
    }
}

#[test]
fn ansible_role_is_yaml_of_modules_that_change_nothing_a_second_time() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/package/examples/ansible");
    let program = "
import sys
try: import yaml
except ImportError: sys.exit(42)
root = sys.argv[1] + '/'
role = root + 'roles/recoded/'
assert yaml.safe_load(open(root + 'site.yml'))[0]['roles'] == ['recoded']
tasks, handlers = (yaml.safe_load(open(role + part + '/main.yml')) for part in ('tasks', 'handlers'))
# Nothing changes that is as wanted. One command queries whether the file is active; only its
# answer notifies handlers.
settled = {'ansible.builtin.' + name for name in ('copy', 'apt', 'systemd_service')}
for task in tasks:
    module = next(key for key in task if key.startswith('ansible.builtin.'))
    if module == 'ansible.builtin.command':
        assert task[module] == 'recodectl reload --diff' and task['notify'], task
        assert task['changed_when'].startswith(repr('nothing to change') + ' not in'), task
        continue
    assert module in settled, task
    assert task[module].get('state', 'present') in ('present', 'started'), task
    assert 'notify' not in task, task
assert sum('notify' in task for task in tasks) == 1, tasks
for task in tasks + handlers:
    assert sum(key.startswith('ansible.builtin.') for key in task) == 1, task
    assert set(task.get('notify', [])) <= {it['name'] for it in handlers}, task
used = {'recoded_package', 'recoded_boxes', 'recoded_confirm_seconds'}
assert set(yaml.safe_load(open(role + 'defaults/main.yml'))) == used
";
    // If the first one in PATH lacks the module, the system's may have it.
    let ends = ["python3", "/usr/bin/python3"].map(|python| {
        let output = Command::new(python).args(["-c", program, folder]).output().ok()?;
        (output.status.code() != Some(42)).then_some(output)
    });
    let Some(output) = ends.into_iter().flatten().next() else {
        return skipped("python3 and its module yaml are not installed (python3-yaml)");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
