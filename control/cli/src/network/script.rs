//! Scripts that run on boxes, for a POSIX shell. Paths are quoted only here.

use recoded_network::{Auth, Network, Node};
use std::path::PathBuf;

/// Paths on a box, each quoted for its shell.
pub struct BoxPaths {
    config: String,
    folder: String,
    key: String,
    socket: String,
    staged: String,
    before: String,
    kept: String,
    applied: String,
    applying: String,
    has_key: bool,
}

/// Quotes `text` as one word of a shell. Text of a network has no NUL byte.
fn quoted(text: &str) -> String {
    shlex::try_quote(text).unwrap_or_default().into_owned()
}

/// A copy of the file that the last apply wrote on a box.
pub fn applied(node: &Node) -> String {
    let config = PathBuf::from(&node.config);
    let name = config.file_name().unwrap_or_default().to_string_lossy().into_owned();
    config.with_file_name(format!(".{name}.applied")).to_string_lossy().into_owned()
}

impl BoxPaths {
    /// Paths on a node; `turn` distinguishes this run from others.
    pub fn new(network: &Network, node: &Node, turn: u32) -> BoxPaths {
        let file = |end: &str| quoted(&format!("{}.{end}-{turn}", node.config));
        let folder = |path: &str| {
            let parent = PathBuf::from(path);
            quoted(&parent.parent().unwrap_or(&parent).to_string_lossy())
        };
        BoxPaths {
            config: quoted(&node.config),
            folder: folder(&node.config),
            key: quoted(&node.private_key),
            socket: quoted(&node.socket(network)),
            staged: file("staged"),
            before: file("before"),
            kept: file("kept"),
            applied: quoted(&applied(node)),
            applying: quoted(&format!("{}-{turn}", applied(node))),
            has_key: network.auth != Auth::None && node.key.is_some(),
        }
    }

    /// The command recodectl on the box, with JSON output.
    fn recodectl(&self) -> String {
        format!("recodectl --json --socket {}", self.socket)
    }

    /// Prints state and diagnosis, one JSON value after the other.
    pub fn status(&self, seconds: u64) -> String {
        let recodectl = self.recodectl();
        format!("{recodectl} show && {recodectl} doctor --seconds {seconds}")
    }

    /// Runs one command of recodectl, with JSON or text output.
    pub fn ask(&self, json: bool, command: &str) -> String {
        let json = if json { " --json" } else { "" };
        format!("recodectl{json} --socket {} {command}", self.socket)
    }

    /// Prints `same`, `differs`, `changed` or `absent`: a file, compared with the active one.
    fn compared(&self, file: &str) -> String {
        let BoxPaths { config, applied, .. } = self;
        format!(
            "if [ ! -e {config} ]; then echo absent; elif cmp -s {file} {config}; then echo same; \
             elif [ -e {applied} ] && ! cmp -s {applied} {config}; then echo changed; else echo \
             differs; fi"
        )
    }

    /// Compares the file on standard input like [`BoxPaths::check`], then prints what the daemon
    /// would change.
    pub fn compare(&self) -> String {
        format!(
            "t=$(mktemp) || exit 1; trap 'rm -f \"$t\"' EXIT; cat > \"$t\" || exit 1; {}; {} reload \
             --diff --with \"$t\"",
            self.compared("\"$t\""),
            self.recodectl()
        )
    }

    /// Keeps a copy of the active file, to notice later changes. Without room for it, none.
    fn keep_applied(&self) -> String {
        let BoxPaths { config, applied, applying, .. } = self;
        format!(
            "{{ cp -p {config} {applying} && mv -f {applying} {applied} || rm -f {applying} \
             {applied}; }}"
        )
    }

    /// Checks the file on standard input: prints `same`, `differs`, `changed` or `absent`, then the
    /// public key of the box or `-`, then the output of `recoded --check`, and exits with its code.
    pub fn check(&self) -> String {
        format!(
            "t=$(mktemp) || exit 1; trap 'rm -f \"$t\"' EXIT; cat > \"$t\" || exit 1; {}",
            self.checks("\"$t\"")
        )
    }

    fn checks(&self, file: &str) -> String {
        let BoxPaths { key, .. } = self;
        let public = match self.has_key {
            true => format!("if [ -r {key} ]; then recodectl pubkey < {key}; else echo -; fi"),
            false => "echo -".to_owned(),
        };
        format!("{}; {public}; recoded --config {file} --check 2>&1", self.compared(file))
    }

    /// Stores the file on standard input next to the active one, checks it like
    /// [`BoxPaths::check`], and removes it if it is invalid.
    pub fn stage(&self) -> String {
        let BoxPaths { config, folder, staged, .. } = self;
        format!(
            "mkdir -p {folder} || exit 1; if [ -e {config} ]; then cp -p {config} {staged} || exit \
             1; fi; cat > {staged} && sync {staged} || {{ rm -f {staged}; exit 1; }}; {{ {}; }}; \
             c=$?; [ $c -eq 0 ] || rm -f {staged}; exit $c",
            self.checks(staged)
        )
    }

    /// Removes the file that [`BoxPaths::stage`] stored.
    pub fn unstage(&self) -> String {
        format!("rm -f {}", self.staged)
    }

    /// Replaces the active file with the staged one and has the daemon apply it for `seconds`
    /// seconds. After that the box restores the old file by itself, unless the new one was
    /// confirmed; the daemon rolls back its configuration in the same way.
    pub fn commit(&self, seconds: u64) -> String {
        let BoxPaths { config, staged, before, .. } = self;
        format!(
            "cp -p {config} {before} && mv -f {staged} {config} || exit 1; nohup sh -c {} \
             </dev/null >/dev/null 2>&1 & {} reload --confirm {seconds}s; c=$?; [ $c -eq 0 ] || mv \
             -f {before} {config}; exit $c",
            quoted(&format!(
                "sleep {seconds}; if [ -e {before} ]; then mv -f {before} {config}; fi"
            )),
            self.recodectl()
        )
    }

    /// Replaces the file on a box without a running daemon.
    pub fn place(&self) -> String {
        format!("mv -f {} {} && {}", self.staged, self.config, self.keep_applied())
    }

    /// Starts the daemon, now and at each boot. If it fails, its own messages follow those of
    /// systemd.
    pub fn start(&self) -> String {
        "systemctl enable --now recoded && exit; c=$?; journalctl -q -u recoded -t recoded -o cat \
         -n 20 | grep -v ' INFO ' | tail -n 1 >&2; exit $c"
            .to_owned()
    }

    /// Keeps the new file, and confirms the configuration if it waits for that.
    pub fn confirm(&self, waits: bool) -> String {
        let BoxPaths { before, kept, .. } = self;
        let confirm = if waits { self.recodectl() + " confirm && " } else { String::new() };
        format!("[ -e {before} ] || exit 1; {confirm}mv -f {before} {kept}")
    }

    /// Removes the old file.
    pub fn finish(&self) -> String {
        format!("{}; rm -f {} {}", self.keep_applied(), self.kept, self.before)
    }

    /// Restores the old file, and undoes the configuration if it changed. A daemon that has already
    /// rolled back is left alone: `undo` would apply the new configuration again.
    pub fn go_back(&self, changed: bool) -> String {
        let BoxPaths { config, before, kept, .. } = self;
        let recodectl = self.recodectl();
        let undo = match changed {
            true => format!(
                "if [ -e {kept} ] || {recodectl} history | grep -q \
                 'confirm_seconds_left\": *[0-9]'; then {recodectl} undo; fi"
            ),
            false => ":".to_owned(),
        };
        format!(
            "{undo}; c=$?; for old in {before} {kept}; do if [ -e \"$old\" ]; then mv -f \"$old\" \
             {config}; fi; done; exit $c"
        )
    }

    /// Generates a private key in a new file, and prints the public key.
    pub fn new_key(&self, path: &str) -> String {
        let key = quoted(path);
        let exists = quoted(&format!(
            "recodectl: {path} exists: if it is not the key in use (recodectl show config there), \
             remove it; else write it as private_key of this box into the network"
        ));
        format!(
            "if [ -e {key} ]; then echo {exists} >&2; exit 1; fi; mkdir -p \"$(dirname {key})\" && \
             umask 077 && recodectl genkey > {key}.$$ && ln {key}.$$ {key}; c=$?; rm -f {key}.$$; [ \
             $c -eq 0 ] || exit $c; recodectl pubkey < {key}"
        )
    }

    /// Removes a private key that is no longer used.
    pub fn retire_key(&self, path: &str) -> String {
        format!("rm -f {}", quoted(path))
    }

    /// Removes a private key, unless the active file names it.
    pub fn discard_key(&self, path: &str) -> String {
        let key = quoted(path);
        format!("grep -qF {key} {} 2>/dev/null || rm -f {key}", self.config)
    }

    /// Prints `made` or `found` and the public key. Generates a private key if there is none; never
    /// overwrites one.
    pub fn key(&self) -> String {
        let key = &self.key;
        format!(
            "if [ -e {key} ]; then echo found; else mkdir -p \"$(dirname {key})\" && umask 077 && \
             recodectl genkey > {key}.$$ && ln {key}.$$ {key}; c=$?; rm -f {key}.$$; [ $c -eq 0 ] \
             || exit $c; echo made; fi; recodectl pubkey < {key}"
        )
    }
}
