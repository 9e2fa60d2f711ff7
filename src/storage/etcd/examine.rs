//! The state of each member of a cluster, for `torana doctor`. Entry point: [`members`].

use super::client::{Access, Members, kv};
use super::error::{ConnectError, Failure};
use etcd_client::{AlarmAction, AlarmType, Client};
use std::time::{Duration, Instant};

/// Time limit of one request.
const WITHIN: Duration = Duration::from_secs(5);
/// Number of reads; the latency is their median.
const READS: usize = 9;
/// A key that need not exist.
const KEY: &str = "torana-doctor";

/// The status a member reports, and its latency.
#[derive(Clone, Debug)]
pub(crate) struct MemberReport {
    pub version: String,
    /// Median duration of a linearizable read.
    pub latency: Duration,
    /// Whether the member has a leader.
    pub has_leader: bool,
    /// Whether it is a learner.
    pub is_learner: bool,
    /// Its alarms: NOSPACE, CORRUPT.
    pub alarms: Vec<String>,
}

/// Why a member gives no report.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unexamined(Failure);

/// Examines each member: its URL, and its report or why it gives none.
///
/// # Errors
/// The addresses or credentials cannot be used.
pub(crate) async fn members(access: &Access) -> Result<Vec<(String, Result<MemberReport, Unexamined>)>, ConnectError> {
    let members = Members::new(access)?;
    let mut out = Vec::new();
    for (index, url) in members.urls().enumerate() {
        // Linearizable reads of any key take the same path through the leader, whether it exists or not.
        let report = async { examine(members.member(index).await?).await };
        let report = tokio::time::timeout(WITHIN, report)
            .await
            .unwrap_or(Err(Failure::TimedOut));
        out.push((url.to_owned(), report.map_err(Unexamined)));
    }
    Ok(out)
}

async fn examine(mut client: Client) -> Result<MemberReport, Failure> {
    let status = client.status().await?;
    let member = status.header().map_or(0, etcd_client::ResponseHeader::member_id);
    let alarms = client.alarm(AlarmAction::Get, AlarmType::None, None).await?;
    // A member reports the alarms of the whole cluster.
    let own = alarms.alarms().iter().filter(|alarm| alarm.member_id() == member);
    let alarms = own.map(|alarm| match alarm.alarm() {
        AlarmType::Nospace => "NOSPACE".to_owned(),
        AlarmType::Corrupt => "CORRUPT".to_owned(),
        AlarmType::None => "NONE".to_owned(),
    });
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let began = Instant::now();
        kv(&client).get(KEY, None).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(MemberReport {
        version: status.version().to_owned(),
        // The median: one slow read (a connection being set up) does not distort it.
        latency: times[READS / 2],
        has_leader: status.leader() != 0,
        is_learner: status.is_learner(),
        alarms: alarms.collect(),
    })
}
