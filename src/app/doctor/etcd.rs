//! The members of the etcd cluster: version, latency, space, leader and alarms. Entry point: [`examine`]. The
//! requests are in `storage::etcd`; here their results are judged.

use super::Finding;
use crate::app::store::access;
use crate::cli::options::EtcdOptions;
use crate::storage::etcd::examine::{MemberReport, members};
use std::collections::BTreeSet;
use std::time::Duration;

const CHECK: &str = "etcd";
/// The oldest version that upstream supports, and the one from which lists need not go to etcd (progress
/// notifications).
const OLDEST: (u32, u32, u32) = (3, 4, 0);
const GOOD: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];
/// Linearizable reads that take longer make every consistent list slow.
const SLOW: Duration = Duration::from_millis(100);

pub(super) async fn examine(options: &EtcdOptions, findings: &mut Vec<Finding>) {
    let clusters = std::iter::once(&options.servers).chain(options.overrides.iter().map(|(_, servers)| servers));
    // A set: overrides often name the same servers for several resources.
    let clusters: BTreeSet<&Vec<String>> = clusters.collect();
    for servers in clusters {
        let reports = match access(options, servers) {
            Ok(access) => members(&access).await.map_err(|e| e.to_string()),
            Err(e) => Err(e.to_string()),
        };
        match reports {
            Ok(reports) => findings.extend(reports.iter().flat_map(|(url, report)| match report {
                Ok(report) => check_member(url, report),
                Err(why) => vec![Finding::error(
                    CHECK,
                    format!("{url} does not answer: {why}"),
                    "start the member, or correct --etcd-servers, --etcd-cafile and --etcd-certfile",
                )],
            })),
            Err(why) => findings.push(Finding::error(CHECK, why, "correct the --etcd-* flags")),
        }
    }
}

/// The numbers of a version; `None` for something else.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    // Also of builds such as `3.6.0-rc.1` and `3.5.13+vendor`.
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

fn check_member(url: &str, report: &MemberReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = numbers(&report.version);
    let good = |v: (u32, u32, u32)| v >= (3, 6, 0) || GOOD.iter().any(|g| (g.0, g.1) == (v.0, v.1) && v.2 >= g.2);
    findings.push(match version {
        Some(v) if v < OLDEST => Finding::error(
            CHECK,
            format!("{url} is version {}", report.version),
            "upgrade etcd to 3.5.13 or later",
        ),
        Some(v) if !good(v) => Finding::warning(
            CHECK,
            format!(
                "{url} is version {}: lists are read from etcd instead of the watch cache",
                report.version
            ),
            "upgrade etcd to 3.5.13 or later",
        ),
        // A version that cannot be parsed is a private build; it gets the benefit of the doubt.
        _ => Finding::ok(CHECK, format!("{url} is version {}", report.version)),
    });
    let ms = report.latency.as_secs_f64() * 1e3;
    findings.push(if report.latency > SLOW {
        let mend = "check the network, the member's disk (etcd_disk_wal_fsync_duration_seconds) and its CPU";
        Finding::warning(CHECK, format!("{url} takes {ms:.1} ms for a linearizable read"), mend)
    } else {
        Finding::ok(CHECK, format!("{url} takes {ms:.1} ms for a linearizable read"))
    });
    if !report.has_leader {
        let mend = "start the other members: a majority must be up";
        findings.push(Finding::error(CHECK, format!("{url} has no leader"), mend));
    }
    if report.is_learner {
        let mend = "promote it (etcdctl member promote), or remove it from --etcd-servers";
        findings.push(Finding::error(
            CHECK,
            format!("{url} is a learner and serves no writes"),
            mend,
        ));
    }
    for alarm in &report.alarms {
        let mend = match alarm.as_str() {
            "NOSPACE" => "compact and defragment, raise --quota-backend-bytes of etcd, then `etcdctl alarm disarm`",
            _ => "restore the member from the others or from a snapshot; its data is damaged",
        };
        findings.push(Finding::error(CHECK, format!("{url} has the alarm {alarm}"), mend));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    fn report(version: &str) -> MemberReport {
        MemberReport {
            version: version.to_owned(),
            latency: Duration::from_millis(1),
            has_leader: true,
            is_learner: false,
            alarms: Vec::new(),
        }
    }

    fn worst(report: &MemberReport) -> Option<Severity> {
        check_member("http://e:2379", report).iter().map(|f| f.severity).max()
    }

    #[test]
    fn severity_depends_on_the_features_of_the_version() {
        for (version, severity) in [
            ("3.3.10", Severity::Error),
            ("3.4.30", Severity::Warning),
            ("3.4.31", Severity::Ok),
            ("3.5.12", Severity::Warning),
            ("3.5.13", Severity::Ok),
            ("3.6.0-rc.1", Severity::Ok),
            ("4.0.0", Severity::Ok),
        ] {
            assert_eq!(worst(&report(version)), Some(severity), "{version}");
        }
    }

    #[test]
    fn alarms_learners_and_a_lost_majority_are_errors() {
        let mut found = report("3.5.20");
        assert_eq!(worst(&found), Some(Severity::Ok));
        found.latency = Duration::from_millis(101);
        assert_eq!(worst(&found), Some(Severity::Warning));
        for change in [
            |r: &mut MemberReport| r.alarms.push("NOSPACE".to_owned()),
            |r: &mut MemberReport| r.has_leader = false,
            |r: &mut MemberReport| r.is_learner = true,
        ] {
            let mut found = report("3.5.20");
            change(&mut found);
            assert_eq!(worst(&found), Some(Severity::Error), "{found:?}");
        }
    }
}
