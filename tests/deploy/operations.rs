//! docs/operations.md as an operator would follow it: every `sh` block is run in order against a gateway,
//! with `systemctl` and `journalctl` replaced by stand-ins. Installation is tested by
//! `scripts/deploy-test.sh`.

use crate::reserved_port;
use crate::support::wait_for;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fake `systemctl`; `$ROOT` has its files.
const SYSTEMCTL: &str = r#"#!/bin/bash
case $1 in
stop | restart)
	kill -TERM "$(cat "$ROOT/pid")"
	# It may stay as a zombie where nobody reaps orphans.
	while grep -q '^State:.[^ZX]' "/proc/$(cat "$ROOT/pid")/status" 2>/dev/null; do :; done
	;;&
start | restart)
	torana serve --config="$ROOT/etc/torana/torana.yaml" --data-dir="$ROOT/var/lib/torana" >>"$ROOT/log" 2>&1 &
	echo $! >"$ROOT/pid"
	until torana health --kubeconfig="$ROOT/var/lib/torana/admin.kubeconfig" >/dev/null 2>&1; do
		kill -0 $! || exit 1
	done
	;;
status) kill -0 "$(cat "$ROOT/pid")" ;;
esac
"#;
const JOURNALCTL: &str = "#!/bin/sh\ncat \"$ROOT/log\"\n";
/// A fake `chown`: there is no user `torana`, and files belong to the user who runs the test.
const CHOWN: &str = "#!/bin/sh\n[ \"$1\" = torana: ] || [ \"$2\" = torana: ]\n";

struct Machine {
    dir: tempfile::TempDir,
    /// The port of the service, which stays its own while it is stopped.
    reserved: (socket2::Socket, u16),
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.run("kill -KILL \"$(cat \"$ROOT/pid\")\"");
        if std::thread::panicking()
            && let Ok(out) = self.run("tail -n 20 \"$ROOT/log\"")
        {
            eprintln!("{}", output_text(&out));
        }
    }
}

fn output_text(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

impl Machine {
    /// A machine with a configured service, which runs.
    fn boot() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            reserved: reserved_port(),
        };
        let root = machine.dir.path();
        for dir in ["bin", "etc/torana", "var/lib/torana", "var/backups"] {
            std::fs::create_dir_all(root.join(dir)).expect("made");
        }
        for (name, text) in [("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL), ("chown", CHOWN)] {
            let path = root.join("bin").join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_torana"), root.join("bin/torana")).expect("linked");
        // One port for all starts, so that kubeconfigs stay valid.
        let port = machine.reserved.1;
        let config = format!(
            "apiVersion: torana.dev/v1alpha1\nkind: ToranaConfiguration\nbindAddress: 127.0.0.1\nsecurePort: {port}\n"
        );
        std::fs::write(root.join("etc/torana/torana.yaml"), config).expect("written");
        machine.sh("systemctl start torana");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a script with the paths of this machine.
    fn run(&self, script: &str) -> std::io::Result<Output> {
        let root = self.dir.path().display().to_string();
        let script = script
            .replace("/var/", &format!("{root}/var/"))
            .replace("/etc/torana", &format!("{root}/etc/torana"));
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .env("ROOT", &root)
            .env("PATH", format!("{root}/bin:{path}"))
            .env("KUBECONFIG", self.path("var/lib/torana/admin.kubeconfig"))
            .current_dir(self.dir.path())
            .output()
    }

    fn sh(&self, script: &str) -> String {
        let out = self.run(script).expect("bash runs");
        assert!(out.status.success(), "{script}\n{}", output_text(&out));
        output_text(&out)
    }

    fn succeeds(&self, script: &str) -> bool {
        self.run(script).is_ok_and(|out| out.status.success())
    }
}

/// The `sh` blocks of the manual, each with its section and the line before it.
fn blocks() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let text = std::fs::read_to_string(path).expect("docs/operations.md");
    let (mut section, mut found, mut block) = (String::new(), Vec::new(), None::<String>);
    for line in text.lines() {
        match &mut block {
            Some(lines) if line == "```" => found.push((section.clone(), std::mem::take(lines))),
            Some(lines) => *lines += &format!("{line}\n"),
            None => {}
        }
        match line {
            "```" => block = None,
            "```sh" => block = Some(String::new()),
            _ if block.is_none() && line.starts_with("##") => section = line.trim_matches(['#', ' ']).to_owned(),
            _ => {}
        }
    }
    found
}

/// The block of a section that contains a text.
fn block(section: &str, text: &str) -> String {
    let mut all = blocks()
        .into_iter()
        .filter(|(of, block)| of == section && block.contains(text));
    let found = all
        .next()
        .unwrap_or_else(|| panic!("{section} has a block with {text}"));
    found.1
}

#[test]
fn backup_and_restore_commands_of_the_manual_work() {
    let machine = Machine::boot();
    machine.sh("kubectl create configmap before");
    machine.sh(&block("Back up and restore", "store backup"));
    let token = machine
        .sh("torana kubeconfig jane --data-dir=/var/lib/torana >jane.kubeconfig; kubectl create configmap after");
    assert!(token.contains("created"), "{token}");
    machine.sh("systemctl stop torana; rm -rf /var/lib/torana/pki/*; systemctl start torana");
    let jane = "kubectl --kubeconfig=jane.kubeconfig auth whoami";
    assert!(!machine.succeeds(jane), "without the keys, what was issued is void");
    machine.sh(&block("Back up and restore", "store restore"));
    machine.sh("kubectl get configmap before");
    assert!(!machine.succeeds("kubectl get configmap after"), "the backup is older");
    machine.sh(jane);
    machine.sh(&block("Upgrade", "config check"));
}

#[test]
fn rotation_commands_of_the_manual_replace_every_generated_key() {
    let section = "Rotate keys and certificates";
    let machine = Machine::boot();
    let read = |name: &str| std::fs::read_to_string(machine.path("var/lib/torana/pki").join(name)).expect(name);
    machine.sh("torana kubeconfig jane --data-dir=/var/lib/torana >old.kubeconfig; kubectl create serviceaccount ci");
    machine.sh("kubectl create token ci --duration=1h >old.token");
    let old = "kubectl --kubeconfig=old.kubeconfig auth whoami";
    let with_token = "kubectl --kubeconfig=/dev/null --server=\"$(sed -n 's/.*server: *//p' \"$KUBECONFIG\" | tr -d '\"')\" \
                      --certificate-authority=/var/lib/torana/pki/ca.crt --token=\"$(cat old.token)\" auth whoami";
    machine.sh(old);
    machine.sh(with_token);

    let before = (read("apiserver.crt"), read("ca.crt"));
    machine.sh(&block(section, "rm /var/lib/torana/pki/apiserver.crt"));
    assert_ne!(read("apiserver.crt"), before.0);
    assert_eq!(read("ca.crt"), before.1);
    machine.sh(old);

    let before = read("client-ca.crt");
    machine.sh(&block(section, "cat client-ca.old.crt"));
    assert!(read("client-ca.crt").ends_with(&before));
    wait_for("certificates of the old CA are accepted again", || {
        machine.succeeds(old)
    });
    machine.sh("kubectl --kubeconfig=/var/lib/torana/pki/jane.kubeconfig auth whoami; kubectl get namespaces");
    machine.sh(&block(section, "openssl x509"));
    wait_for("certificates of the old CA are not accepted any more", || {
        !machine.succeeds(old)
    });
    machine.sh("kubectl --kubeconfig=/var/lib/torana/pki/jane.kubeconfig auth whoami; kubectl get namespaces");

    let before = read("front-proxy-ca.crt");
    machine.sh(&block(section, "rm front-proxy-ca.crt"));
    let now = read("front-proxy-ca.crt");
    assert_ne!(now, before);
    let published = "kubectl get configmap -n kube-system extension-apiserver-authentication \
                     -o jsonpath='{.data.requestheader-client-ca-file}'";
    wait_for("the new CA is published", || machine.sh(published).contains(now.trim()));

    let before = read("sa.key");
    machine.sh(&block(section, "openssl genpkey"));
    assert_ne!(read("sa.key"), before);
    machine.sh(with_token);
    machine.sh("kubectl create token ci >new.token");
    machine.sh(&block(section, "-pubout >sa.pub\n"));
    assert!(!machine.succeeds(with_token), "the old key is gone");
    machine.sh(&with_token.replace("old.token", "new.token"));

    machine.sh("kubectl create secret generic kept --from-literal=a=b");
    machine.sh(&block(section, "kubectl replace"));

    machine.sh(&block(section, "rm ca.crt"));
    assert!(
        !machine.succeeds("kubectl --kubeconfig=old.kubeconfig get --raw /livez"),
        "the CA is another"
    );
    machine.sh("kubectl get namespaces");
}

/// Emergency procedures must work as documented. Here the service is healthy, so only the output of the
/// commands differs.
#[test]
fn the_commands_of_the_runbooks_work() {
    let machine = Machine::boot();
    let alerts = crate::read("observe/rules.yaml").matches("- alert: ").count();
    assert_eq!(alerts, 10);
    let mut run = 0;
    for (section, block) in blocks() {
        if section == "Read the signals" || section.starts_with("Torana") {
            machine.sh(&block);
            run += 1;
        }
    }
    assert_eq!(run, alerts + 1, "each has a block");
}
