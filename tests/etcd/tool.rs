//! Errors of `torana store`: each is one line with a hint, and leaves no files behind.

use crate::etcd_process::{Etcd, is_there};
use crate::support::Gateway;
use std::path::Path;
use std::process::Command;

/// Runs the command. Returns its output, or its error.
fn store(dir: &Path, args: &[&str]) -> Result<String, String> {
    let out = Command::new(env!("CARGO_BIN_EXE_torana"))
        .current_dir(dir)
        .arg("store")
        .args(args)
        .output()
        .unwrap();
    let error = String::from_utf8(out.stderr).unwrap();
    match out.status.code() {
        Some(0) => Ok(String::from_utf8(out.stdout).unwrap()),
        Some(1) => {
            assert_eq!(error.lines().count(), 1, "{error}");
            Err(error.trim_end().to_owned())
        }
        other => panic!("{args:?}: {other:?}: {error}"),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_missing_store_is_an_error_and_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["check"][..],
        &["stats"],
        &["compact"],
        &["backup", "--to=b.db"],
        &["export", "--etcd-servers=http://127.0.0.1:1"],
    ] {
        let args = [args, &["--data-dir=nowhere"]].concat();
        assert_eq!(
            store(dir.path(), &args),
            Err("torana: --data-dir: there is no store in nowhere".to_owned())
        );
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn an_invalid_backup_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(Gateway::start(dir.path()));
    let at = dir.path();
    store(at, &["backup", "--data-dir=data", "--to=whole.db"]).unwrap();
    let taken = store(at, &["backup", "--data-dir=data", "--to=whole.db"]).unwrap_err();
    assert_eq!(taken, "torana: whole.db is there already and is not overwritten");
    let whole = std::fs::read(at.join("whole.db")).unwrap();
    std::fs::write(at.join("half.db"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(at.join("text.db"), "hello\n").unwrap();
    std::fs::write(at.join("empty.db"), "").unwrap();
    for file in ["half.db", "text.db", "empty.db", "missing.db"] {
        let why = store(at, &["restore", "--data-dir=new", &format!("--from={file}")]).unwrap_err();
        assert!(
            why.starts_with(&format!("torana: {file} cannot be taken for a backup: ")),
            "{why}"
        );
        assert!(why.ends_with("Nothing was changed"), "{why}");
    }
    assert!(!at.join("new").exists());
    store(at, &["restore", "--data-dir=new", "--from=whole.db"]).unwrap();
    assert!(store(at, &["check", "--data-dir=new"]).unwrap().ends_with("is whole\n"));
    for made in ["whole.db", "new/store.db"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(at.join(made)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{made} is readable by its owner only");
    }
}

#[test]
fn a_store_in_use_can_be_checked_and_copied_but_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::start(dir.path());
    let at = dir.path();
    assert!(
        store(at, &["check", "--data-dir=data"])
            .unwrap()
            .ends_with("is whole\n")
    );
    store(at, &["backup", "--data-dir=data", "--to=b.db"]).unwrap();
    for args in [&["compact"][..], &["restore", "--from=b.db"]] {
        let why = store(at, &[args, &["--data-dir=data"]].concat()).unwrap_err();
        let pid = g.process.child.id();
        assert_eq!(
            why,
            format!("torana: --data-dir: the store in data is in use by process {pid}")
        );
    }
}

#[test]
fn a_full_disk_leaves_no_partial_copy() {
    let dir = tempfile::tempdir().unwrap();
    drop(Gateway::start(dir.path()));
    let at = dir.path();
    // A file size limit simulates a full disk without root.
    let bounded = |command: &str| {
        let script = format!(
            "trap '' XFSZ; ulimit -f 64; exec {} store {command}",
            env!("CARGO_BIN_EXE_torana")
        );
        let out = Command::new("sh")
            .current_dir(at)
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8(out.stderr).unwrap()
    };
    let why = bounded("backup --data-dir=data --to=b.db");
    assert!(why.contains("b.db"), "{why}");
    assert!(!at.join("b.db").exists());
    store(at, &["backup", "--data-dir=data", "--to=b.db"]).unwrap();
    let why = bounded("restore --data-dir=new --from=b.db");
    assert!(why.contains("store.db.restoring"), "{why}");
    assert_eq!(names(&at.join("new")), ["lock"]);
}

#[test]
fn an_unreachable_or_empty_etcd_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let why = store(dir.path(), &["stats", "--etcd-servers=http://127.0.0.1:1"]).unwrap_err();
    let words = "torana: --etcd-servers: no answer from etcd within 5s: http://127.0.0.1:1: ";
    assert!(why.starts_with(words) && why.contains("Connection refused"), "{why}");
    if !is_there() {
        return;
    }
    let etcd = Etcd::start(1);
    let servers = format!("--etcd-servers={}", etcd.servers()[0]);
    let why = store(
        dir.path(),
        &["import", "--data-dir=i", &servers, "--etcd-prefix=/other"],
    )
    .unwrap_err();
    assert_eq!(why, "torana: --etcd-prefix: etcd holds no objects below /other/");
    assert!(!dir.path().join("i").exists());
}

#[test]
fn a_round_trip_through_etcd_preserves_objects_in_current_versions() {
    if !is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    drop(Gateway::start(dir.path()));
    let at = dir.path();
    let etcd = Etcd::start(1);
    let servers = format!("--etcd-servers={}", etcd.servers()[0]);
    store(at, &["export", "--data-dir=data", &servers, "--keep-revisions=true"]).unwrap();
    let twice = store(at, &["export", "--data-dir=data", &servers]).unwrap_err();
    assert!(
        twice.ends_with(" is in etcd already; nothing is overwritten"),
        "{twice}"
    );
    let old = br#"{"apiVersion": "networking.k8s.io/v1beta1", "kind": "IPAddress", "metadata": {"name": "10.9.9.9"},
        "spec": {"parentRef": {"resource": "services", "name": "a"}}}"#;
    etcd.put_bytes("/registry/ipaddresses/10.9.9.9", old);
    store(at, &["import", "--data-dir=back/data", &servers]).unwrap();
    let again = store(at, &["import", "--data-dir=back/data", &servers]).unwrap_err();
    assert!(
        again.ends_with("store.db is there already and is not overwritten"),
        "{again}"
    );
    let of = |data: &str| -> Vec<String> {
        let output = store(at, &["stats", &format!("--data-dir={data}")]).unwrap();
        let lines = output
            .lines()
            // Claimed node ports are not objects of a resource; a start finds them in the Services.
            .filter(|l| l.contains(" objects ") && !l.contains("ipaddresses") && !l.contains("  ranges "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(of("data"), of("back/data"));
    let g = Gateway::start(&at.join("back"));
    let text = g.curl(&["/apis/networking.k8s.io/v1/ipaddresses/10.9.9.9"]).unwrap();
    assert!(text.contains("networking.k8s.io/v1\""), "{text}");
    // One invalid value makes the whole import fail.
    etcd.put_bytes("/registry/configmaps/default/bad", b"garbage");
    let why = store(at, &["import", "--data-dir=third", &servers]).unwrap_err();
    assert!(why.contains("/registry/configmaps/default/bad: "), "{why}");
    assert!(!at.join("third").exists());
}
