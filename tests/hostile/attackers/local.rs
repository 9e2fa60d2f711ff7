//! A process of another user on the gateway's machine, with access to files, sockets and the loopback
//! interface.

use super::Cases;
use super::anonymous::upgrade;
use crate::scale::Scale;
use crate::wire::Request;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Collects every file and directory below `dir`.
fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            walk(&path, found);
        }
        found.push(path);
    }
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    cases.add(
        "files: nothing private in the data directory can be read or changed by others",
        |scene| {
            let mut found = Vec::new();
            walk(&scene.stage.gateway.dir.join("data"), &mut found);
            for path in found {
                let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                    continue;
                };
                let mode = metadata.permissions().mode();
                let name = path.display();
                let public = path.extension().is_some_and(|e| e == "crt" || e == "pub");
                // A directory that others cannot enter protects its content.
                let sheltered = path.ancestors().skip(1).any(|dir| {
                    dir.starts_with(&scene.stage.gateway.dir)
                        && std::fs::metadata(dir).is_ok_and(|m| m.permissions().mode() & 0o005 == 0)
                });
                let mut expect =
                    |claim: bool, what: &str| scene.expect(claim, || format!("{name} has mode {mode:o}: {what}"));
                expect(mode & 0o022 == 0, "others can change it");
                expect(
                    public || metadata.is_dir() || sheltered || mode & 0o044 == 0,
                    "others can read it",
                );
            }
        },
    );
    cases.add(
        "files: what is made is private without help of its directory",
        |scene| {
            for name in ["aggregator", "admin.kubeconfig", "pki/ca.key", "pki/admin.key"] {
                let path = scene.stage.gateway.dir.join("data").join(name);
                let Ok(metadata) = std::fs::metadata(&path) else {
                    continue;
                };
                let mode = metadata.permissions().mode() & 0o077;
                scene.expect(mode == 0, || format!("{name} is open to others: {mode:o}"));
            }
        },
    );
    cases.add("process: no secret in its arguments or environment", |scene| {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{}/{file}", scene.stage.pid)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            scene.expect(!text.contains("t-admin"), || format!("{file} has a token"));
        }
    });
    cases.add("process: listens on its port only", |scene| {
        let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", scene.stage.pid))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| std::fs::read_link(e.path()).ok())
            .filter_map(|l| Some(l.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
            .collect();
        let listening = |file: &str| {
            let text = std::fs::read_to_string(format!("/proc/{}/net/{file}", scene.stage.pid)).unwrap_or_default();
            text.lines()
                .filter(|l| l.split_whitespace().nth(3) == Some("0A"))
                .filter(|l| {
                    l.split_whitespace()
                        .nth(9)
                        .is_some_and(|i| inodes.iter().any(|n| n == i))
                })
                .count()
        };
        let ports = listening("tcp") + listening("tcp6");
        scene.expect(ports == 1, || format!("{ports} ports"));
        let unix = std::fs::read_to_string(format!("/proc/{}/net/unix", scene.stage.pid)).unwrap_or_default();
        let own = unix
            .lines()
            .filter(|l| {
                l.split_whitespace()
                    .nth(6)
                    .is_some_and(|i| inodes.iter().any(|n| n == i))
            })
            .filter(|l| l.split_whitespace().nth(3) == Some("00010000"))
            .count();
        scene.expect(own == 0, || format!("{own} Unix sockets"));
    });
    for path in [
        "/debug/aggregator",
        "/debug/pprof/",
        "/debug/flags/v",
        "/metrics",
        "/configz",
        "/flagz",
        "/statusz",
        "/debug/api_priority_and_fairness/dump_requests",
        "/logs/",
    ] {
        cases.add(format!("pages: {path} without credentials"), move |scene| {
            if let Some(answer) = scene.send(&Request::get(path)) {
                scene.expect(matches!(answer.code, 401 | 403 | 404), || {
                    format!("{path}: {}", answer.code)
                });
            }
        });
    }
    cases.add("loopback: says it is the gateway itself", |scene| {
        for (name, value) in [
            ("X-Forwarded-For", "127.0.0.1"),
            ("Forwarded", "for=127.0.0.1;proto=https"),
            ("X-Real-Ip", "127.0.0.1"),
            ("X-Remote-User", "system:apiserver"),
            ("X_Remote_User", "system:apiserver"),
            ("X-Original-Url", "/livez"),
        ] {
            let request = Request::get("/api/v1/namespaces/calm/secrets").header(name, value);
            if let Some(answer) = scene.send(&request) {
                scene.expect(answer.code == 403, || format!("{name}: {}", answer.code));
            }
        }
    });
    let n = scale.reduced(1_000, 4);
    cases.add("loopback: 1,000 connections of plain text", move |scene| {
        let mut open = Vec::new();
        for _ in 0..n {
            let Some(mut tcp) = scene.tcp() else { break };
            let _ = tcp.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n");
            open.push(tcp);
        }
        scene.hold();
    });
    cases.add("loopback: 1,000 upgrades of what cannot be upgraded", move |scene| {
        for _ in 0..n / 10 {
            scene.send(&upgrade("/livez", "websocket"));
        }
    });
}
