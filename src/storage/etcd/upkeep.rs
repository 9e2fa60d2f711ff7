//! What a cluster needs from time to time: a probe for health and readiness, its versions, and compaction, which all
//! API servers on one cluster agree on through a key.

use super::client::{Limits, kv};
use super::error::Failure;
use super::resource::Shared;
use etcd_client::{AlarmAction, AlarmType, Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The key of the agreement; outside of every prefix.
const COMPACTED: &str = "compact_rev_key";
/// Time between looks at versions and at what the cluster complains about.
const LOOK: Duration = Duration::from_secs(5);

/// What the last look at something has found.
pub(super) struct Verdict(Mutex<Result<(), String>>);

impl Default for Verdict {
    fn default() -> Self {
        Self(Mutex::new(Err("etcd client connection not yet established".to_owned())))
    }
}

impl Verdict {
    pub fn get(&self) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, found: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// What the last probes found.
#[derive(Default)]
pub(super) struct Probe {
    pub health: Verdict,
    pub readiness: Verdict,
    /// Bytes of the database.
    pub size: AtomicU64,
}

/// True for versions whose answers to a request for progress come behind the events before them: 3.4.31, 3.5.13 and
/// later ones (etcd's issues 15220 and 17507).
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

/// Reads a key again and again, twice in the time that an answer may take. Half of it is left for another member where
/// one is silent.
pub(super) async fn probe(shared: &Shared, verdict: &Verdict, key: &str, timeout: Duration) {
    let half = timeout / 2;
    let limits = Limits {
        attempt: half,
        patience: timeout,
    };
    let every = half.max(Duration::from_millis(100));
    loop {
        let read = shared.members.range_within(limits, key, GetOptions::new());
        verdict.set(match tokio::time::timeout(timeout, read).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Failure::TimedOut)) | Err(_) => {
                Err("error getting data from etcd: context deadline exceeded".to_owned())
            }
            Ok(Err(e)) => Err(format!("error getting data from etcd: {e}")),
        });
        tokio::time::sleep(every).await;
    }
}

/// Looks at versions and alarms now and then.
pub(super) async fn keep_looking(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK).await;
        look_after(&shared).await;
    }
}

/// Versions and alarms.
pub(super) async fn look_after(shared: &Shared) {
    if shared.by_version {
        let versions = shared.members.versions().await;
        let trusted = versions.iter().all(|v| v.as_deref().is_some_and(is_trusted));
        shared.trusted.store(trusted, Ordering::Release);
    }
    let alarms = shared
        .members
        .call(|client| async move {
            let mut maintenance = client.maintenance_client();
            maintenance.alarm(AlarmAction::Get, AlarmType::None, None).await
        })
        .await;
    let Ok(alarms) = alarms else { return };
    let full = alarms.alarms().iter().any(|a| a.alarm() == AlarmType::Nospace);
    if shared.no_space.swap(full, Ordering::AcqRel) != full {
        if full {
            tracing::error!(
                "etcd is out of space (alarm NOSPACE): it refuses writes until it is compacted, defragmented and the \
                 alarm is disarmed"
            );
        } else {
            tracing::info!("etcd takes writes again");
        }
    }
}

/// Asks for the size of the database every so often.
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

/// Compacts every so often, in agreement with the other API servers: whoever finds the key as it left it, writes the
/// revision of the last time there and compacts to that; whoever doesn't, learns. So history is kept one to two
/// intervals (upstream: `etcd3/compact.go`).
pub(super) async fn compact(shared: Arc<Shared>, interval: Duration) {
    let (mut version, mut revision) = (0, 0);
    loop {
        tokio::time::sleep(interval).await;
        match turn(&shared, version, revision).await {
            Ok((v, r)) => (version, revision) = (v, r),
            Err(e) => tracing::warn!(error = %e, "compaction did not work, it is tried again"),
        }
    }
}

async fn turn(shared: &Shared, version: i64, revision: i64) -> Result<(i64, i64), Failure> {
    let answer = shared
        .members
        .call(|client| {
            let txn = Txn::new()
                .when([Compare::version(COMPACTED, CompareOp::Equal, version)])
                .and_then([TxnOp::put(COMPACTED, revision.to_string(), None)])
                .or_else([TxnOp::get(COMPACTED, None)]);
            async move { kv(&client).txn(txn).await }
        })
        .await?;
    let now = shared.members.saw(answer.header()).0.cast_signed();
    if !answer.succeeded() {
        let theirs = match answer.op_responses().first() {
            Some(TxnOpResponse::Get(found)) => found.kvs().first().map_or(0, etcd_client::KeyValue::version),
            _ => 0,
        };
        return Ok((theirs, now));
    }
    if revision > 0 {
        let compacted = shared
            .members
            .call(|client| async move { kv(&client).compact(revision, None).await })
            .await;
        match compacted {
            // Somebody was faster.
            Err(e) if e.is_compacted() => {}
            Err(e) => return Err(e),
            Ok(_) => tracing::debug!(revision, "etcd is compacted"),
        }
    }
    Ok((version + 1, now))
}

#[cfg(test)]
mod tests {
    use super::is_trusted;

    #[test]
    fn progress_is_trusted_from_the_fixed_versions_on() {
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
