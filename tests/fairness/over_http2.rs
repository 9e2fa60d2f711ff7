//! Against a process, over HTTP/2: levels that kubectl changes meanwhile, and requests to a backend.

use super::gateway::{FLAGS, token_file};
use super::{MAPS, config_map};
use crate::support::{Gateway, wait_for};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const GADGETS: &str = "/apis/gadgets.example.com/v1/namespaces/default/gadgets";

fn gateway(dir: &Path) -> Gateway {
    let tokens = token_file(dir);
    let flags: Vec<&str> = FLAGS.iter().copied().chain([tokens.as_str()]).collect();
    Gateway::start_with(dir, &flags)
}

/// Sends requests as a user, over one connection and as many at once as that has streams: opening connections
/// is limited by other rules. Returns the codes of the responses. `[1-9]` in a path stands for as many
/// requests.
fn codes(g: &Gateway, user: &str, path: &str) -> Vec<String> {
    let out = Command::new("curl")
        .args(["-sk", "--http2", "--parallel", "--parallel-max", "100"])
        .args(["-o", "/dev/null", "-w", "%{http_code}\n", "-H"])
        .arg(format!("Authorization: Bearer {user}"))
        .arg(format!("{}{path}", g.url()))
        .output()
        .expect("curl is installed (make tools)");
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Runs `work` while the flood repeats its requests. They are served or refused, but not failed.
fn beside_a_flood(g: &Gateway, path: &str, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        /// Ends the flood, also if the work panics: the scope waits for it.
        struct Finish<'a>(&'a AtomicBool);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let flooding = scope.spawn(|| {
            let mut all = Vec::new();
            while !done.load(Ordering::Relaxed) {
                all.extend(codes(g, "flood", path));
            }
            all
        });
        let finish = Finish(&done);
        work();
        drop(finish);
        let all = flooding.join().unwrap();
        assert!(all.iter().all(|code| code == "200" || code == "429"), "{all:?}");
        assert!(all.iter().any(|code| code == "200"));
    });
}

#[test]
fn levels_change_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let g = gateway(dir.path());
    let maps: Vec<String> = (0..50).map(|n| config_map(&format!("m{n}"), 1_000)).collect();
    g.kubectl_in(&["create", "-n", "default", "-f", "-"], Some(&maps.join("\n")));
    let quiet = || assert_eq!(codes(&g, "quiet", &format!("{MAPS}/m7")), ["200"]);
    let level = |shares: u32| {
        format!(
            r#"{{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration",
            "metadata":{{"name":"floods"}},"spec":{{"type":"Limited","limited":{{"nominalConcurrencyShares":{shares},
            "limitResponse":{{"type":"Queue","queuing":{{"queues":16,"handSize":4,"queueLengthLimit":50}}}}}}}}}}"#
        )
    };
    let schema = r#"{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"floods"},
        "spec":{"matchingPrecedence":60,"priorityLevelConfiguration":{"name":"floods"},
        "distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":"flood"}}],
        "resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"]}]}]}}"#;
    beside_a_flood(&g, &format!("{MAPS}?n=[1-400]"), || {
        // The schema first: it is Dangling until its level exists.
        g.kubectl_in(&["apply", "-f", "-"], Some(schema));
        let dangling = |status: &str| {
            let condition = format!("--for=condition=Dangling={status}");
            g.kubectl(&["wait", &condition, "flowschema/floods", "--timeout=60s"]);
        };
        dangling("True");
        g.kubectl_in(&["apply", "-f", "-"], Some(&level(10)));
        dangling("False");
        for shares in [1, 50] {
            g.kubectl_in(&["apply", "-f", "-"], Some(&level(shares)));
            (0..5).for_each(|_| quiet());
        }
        g.kubectl(&["delete", "prioritylevelconfiguration/floods"]);
        dangling("True");
        quiet();
        g.kubectl(&["delete", "flowschema/floods"]);
    });
    wait_for("the deleted level is forgotten", || {
        let dump = g.kubectl(&["get", "--raw", "/debug/api_priority_and_fairness/dump_priority_levels"]);
        assert!(dump.starts_with("PriorityLevelName,"), "{dump}");
        !dump.contains("floods,")
    });
    let metrics = g.kubectl(&["get", "--raw", "/metrics"]);
    for family in [
        "nominal_limit_seats",
        "current_executing_seats",
        "request_wait_duration_seconds_count",
        "read_vs_write_current_requests_count",
    ] {
        let series = format!("apiserver_flowcontrol_{family}{{");
        assert!(metrics.contains(&series), "{series} is missing");
    }
}

#[test]
fn requests_to_a_backend_take_part() {
    let dir = tempfile::tempdir().unwrap();
    let g = gateway(dir.path());
    let _backend = g.with_example();
    let gadgets: Vec<String> = (0..20)
        .map(|n| {
            format!(
                r#"{{"apiVersion":"gadgets.example.com/v1","kind":"Gadget","metadata":{{"name":"g{n}"}},"spec":{{"size":1}}}}"#
            )
        })
        .collect();
    g.kubectl_in(&["create", "-n", "default", "-f", "-"], Some(&gadgets.join("\n")));
    beside_a_flood(&g, &format!("{GADGETS}?n=[1-200]"), || {
        for _ in 0..10 {
            assert_eq!(codes(&g, "quiet", &format!("{GADGETS}/g7")), ["200"]);
        }
    });
    let metrics = g.kubectl(&["get", "--raw", "/metrics"]);
    let series = "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"global-default\"";
    let line = metrics.lines().find(|l| l.starts_with(series)).unwrap_or_default();
    let dispatched: u64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(
        dispatched > 200,
        "they are counted in the level of other users: {line:?}"
    );
}
