//! Background tasks of a cluster: health and readiness probes, version and alarm checks, database size, and
//! compaction, which all API servers of a cluster coordinate through a key.

use super::client::{Limits, kv};
use super::error::Failure;
use super::resource::Shared;
use crate::storage::Revision;
use crate::storage::backend::Unavailable;
use crate::sync::Mutex;
use etcd_client::{AlarmAction, AlarmType, Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The key that coordinates compaction; outside every prefix. Upstream's.
const COMPACTED: &str = "compact_rev_key";
/// Interval of version and alarm checks.
const LOOK: Duration = Duration::from_secs(5);

/// Result of the last probe.
pub(super) struct ProbeResult(Mutex<Result<(), Unavailable>>);

impl Default for ProbeResult {
    fn default() -> Self {
        Self(Mutex::new(Err(Unavailable::NotConnected)))
    }
}

impl ProbeResult {
    pub(crate) fn get(&self) -> Result<(), Unavailable> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, found: Result<(), Unavailable>) {
        *self.0.lock() = found;
    }
}

/// Results of the background probes.
#[derive(Default)]
pub(super) struct Probe {
    pub health: ProbeResult,
    pub readiness: ProbeResult,
    /// Database size, in bytes.
    pub size: AtomicU64,
}

/// True for versions that send the response to a progress request after all preceding events: 3.4.31, 3.5.13
/// and later (etcd issues 15220 and 17507).
pub(super) fn is_trusted(version: &str) -> bool {
    let mut parts = version.splitn(3, '.');
    let mut number = || {
        let part = parts.next()?;
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse::<u32>().ok()
    };
    match (number(), number(), number()) {
        (Some(3), Some(4), Some(patch)) => patch >= 31,
        (Some(3), Some(5), Some(patch)) => patch >= 13,
        (Some(major), Some(minor), Some(_)) => (major, minor) > (3, 5),
        _ => false,
    }
}

/// Probes by reading a key, twice per `timeout`. One attempt gets half the time, so that another member can
/// be tried if the first does not answer. Never returns.
pub(super) async fn probe(shared: &Shared, result: &ProbeResult, key: &str, timeout: Duration) {
    let half = timeout / 2;
    let limits = Limits {
        attempt: half,
        total: timeout,
    };
    // A zero or tiny timeout must not become a busy loop.
    let every = half.max(Duration::from_millis(100));
    loop {
        let read = shared.members.range_within(limits, key, GetOptions::new());
        result.set(match tokio::time::timeout(timeout, read).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Failure::TimedOut)) | Err(_) => Err(Unavailable::TimedOut),
            Ok(Err(e)) => Err(Unavailable::Refused(e.to_string())),
        });
        tokio::time::sleep(every).await;
    }
}

/// Checks versions and alarms periodically. Never returns.
pub(super) async fn check_versions_and_alarms_periodically(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK).await;
        check_versions_and_alarms(&shared).await;
    }
}

/// Checks versions and alarms once.
pub(super) async fn check_versions_and_alarms(shared: &Shared) {
    if shared.decide_by_version {
        let versions = shared.members.versions().await;
        // One old member suffices to distrust: a watch may be moved to it at any time.
        let trusted = versions.iter().all(|v| v.as_deref().is_some_and(is_trusted));
        shared.progress_reliable.store(trusted, Ordering::Release);
    }
    let alarms = shared
        .members
        .call(|client| async move {
            let mut maintenance = client.maintenance_client();
            maintenance.alarm(AlarmAction::Get, AlarmType::None, None).await
        })
        .await;
    // No answer says nothing about alarms; the last known state stays.
    let Ok(alarms) = alarms else { return };
    let full = alarms.alarms().iter().any(|a| a.alarm() == AlarmType::Nospace);
    // Logged only on a change; the check runs every few seconds.
    if shared.no_space.swap(full, Ordering::AcqRel) != full {
        if full {
            tracing::error!(
                "etcd is out of space (alarm NOSPACE): it refuses writes until it is compacted, defragmented and the \
                 alarm is disarmed"
            );
        } else {
            tracing::info!("etcd accepts writes again");
        }
    }
}

/// Reads the database size periodically. Never returns.
pub(super) async fn measure(shared: Arc<Shared>, probe: Arc<Probe>, every: Duration) {
    loop {
        let status = shared
            .members
            .call(|client| async move { client.maintenance_client().status().await })
            .await;
        if let Ok(status) = status {
            probe.size.store(status.db_size().cast_unsigned(), Ordering::Release);
        }
        tokio::time::sleep(every).await;
    }
}

/// Compacts periodically, coordinated with other API servers (upstream: `pkg/storage/etcd3/compact.go`). The
/// server that finds the key's version unchanged since its last look writes to it and compacts to the
/// revision of its last look; the others only update what they know. History is thus kept for one to two
/// intervals. Never returns.
pub(super) async fn compact(shared: Arc<Shared>, interval: Duration) {
    // Version 0 stands for a key that does not exist: the first look only learns the others' state.
    let (mut version, mut revision) = (0, 0);
    loop {
        tokio::time::sleep(interval).await;
        match compact_once(&shared, version, revision).await {
            Ok((v, r)) => (version, revision) = (v, r),
            // The old pair is kept; if the write did happen, the comparison fails next time and the pair is
            // read anew.
            Err(e) => tracing::warn!(error = %e, "compaction failed and will be retried"),
        }
    }
}

async fn compact_once(shared: &Shared, version: i64, revision: i64) -> Result<(i64, i64), Failure> {
    let answer = shared
        .members
        .call(|client| {
            let txn = Txn::new()
                // Decided by etcd in one transaction: of several servers exactly one wins.
                .when([Compare::version(COMPACTED, CompareOp::Equal, version)])
                .and_then([TxnOp::put(COMPACTED, revision.to_string(), None)])
                .or_else([TxnOp::get(COMPACTED, None)]);
            async move { kv(&client).txn(txn).await }
        })
        .await?;
    let now = shared.members.saw(answer.header()).0.cast_signed();
    if !answer.succeeded() {
        let responses = answer.op_responses();
        let theirs = match responses.first() {
            Some(TxnOpResponse::Get(found)) => found.kvs().first(),
            _ => None,
        };
        // The winner compacts to this revision; lists below it are refused by all servers alike.
        if let Some(revision) = theirs.and_then(|pair| pair.value_str().ok()?.parse().ok()) {
            shared.compaction.advance(Revision(revision));
        }
        return Ok((theirs.map_or(0, etcd_client::KeyValue::version), now));
    }
    // In the first round there is no earlier revision to compact to.
    if revision > 0 {
        let compacted = shared
            .members
            .call(|client| async move { kv(&client).compact(revision, None).await })
            .await;
        match compacted {
            // Another server has compacted further already.
            Err(e) if e.is_compacted() => {}
            Err(e) => return Err(e),
            Ok(_) => tracing::debug!(revision, "etcd is compacted"),
        }
        shared.compaction.advance(Revision(revision.cast_unsigned()));
    }
    // Our own write has increased the version by one.
    Ok((version + 1, now))
}

#[cfg(test)]
mod tests {
    use super::is_trusted;

    #[test]
    fn progress_requests_are_trusted_from_fixed_versions_on() {
        for (version, trusted) in [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0", true),
            ("3.6.0-rc.1", true),
            ("3.5.13-alpha", true),
            ("4.0.0", true),
            ("3.3.99", false),
            ("", false),
            ("3.6", false),
            ("x.y.z", false),
        ] {
            assert_eq!(is_trusted(version), trusted, "{version}");
        }
    }
}
