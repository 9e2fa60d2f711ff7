//! Reading and writing a whole cluster from outside the server, for `torana store`. Entry point:
//! [`Exchange::connect`].

use super::client::{Access, Members, kv};
use super::connect;
use super::error::{ConnectError, Failure};
use super::resource::{after, end_of, first_pair};
use super::values::{self, MediaType};
use crate::apimachinery::value::Value;
use crate::storage::transform::ENCRYPTED;
use crate::storage::{Draft, Undecodable, embedded};
use bytes::Bytes;
use embedded::tool::{Object, Progress};
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PAGE: i64 = 2_000;
/// A key written repeatedly to advance the cluster's revision, and deleted at the end.
const FILLER: &str = "torana-filler";
/// Maximum number of revisions to skip that way.
pub(crate) const MAX_FILL: u64 = 1_000_000;

/// Why an exchange with a cluster failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The cluster could not be reached.
    Connect(ConnectError),
    /// The cluster returned an error or did not answer.
    Refused(String),
    /// A key to be written exists already.
    Exists(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(e) => write!(f, "{e}"),
            Self::Refused(why) => f.write_str(why),
            Self::Exists(key) => write!(f, "{key} is in etcd already; nothing is overwritten"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(e: Failure) -> Self {
        Self::Refused(e.to_string())
    }
}

/// A key-value pair in etcd.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// The full key.
    pub key: String,
    /// The revision of its last write.
    pub revision: u64,
    /// The stored bytes.
    pub value: Bytes,
    /// Expiry time in milliseconds since 1970.
    pub expires: Option<i64>,
}

/// A connection for a one-time export or import.
pub(crate) struct Exchange {
    members: Members,
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

/// Converts a stored value in any encoding to the JSON that the embedded store keeps. `update` converts the
/// object to the current storage version.
///
/// # Errors
/// [`Undecodable`].
pub(crate) fn to_embedded(
    value: &[u8],
    update: fn(&mut Value) -> Result<(), Undecodable>,
) -> Result<Bytes, Undecodable> {
    let mut tree = values::decode(value)?;
    update(&mut tree)?;
    Ok(Draft::new(&tree, Vec::new()).json)
}

/// Returns the API group of a stored object in any encoding.
///
/// # Errors
/// [`Undecodable`].
pub(crate) fn group_of(value: &[u8]) -> Result<String, Undecodable> {
    let tree = values::decode(value)?;
    let version = tree.str_at(&["apiVersion"]);
    Ok(version.split_once('/').map_or("", |(group, _)| group).to_owned())
}

/// Whether a write that found its key taken had been executed by an earlier attempt, whose response was lost.
fn is_own_write(attempts: usize, there: Option<&[u8]>, value: &[u8]) -> bool {
    attempts > 1 && there == Some(value)
}

impl Exchange {
    /// Connects and waits for an answer.
    ///
    /// # Errors
    /// [`Error::Connect`] if no member answers within the time.
    pub(crate) async fn connect(access: &Access, within: Duration) -> Result<Self, Error> {
        let members = Members::new(access).map_err(Error::Connect)?;
        // Any key will do; the filler's is our own.
        connect::reach(&members, FILLER, within).await.map_err(Error::Connect)?;
        Ok(Self { members })
    }

    /// Reads all pairs below a prefix at one revision, sorted by the revision of the pairs. Also returns the
    /// revision.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) async fn read(&self, prefix: &str, progress: Progress<'_>) -> Result<(u64, Vec<Pair>), Error> {
        let end = end_of(prefix);
        let (mut from, mut pinned, mut out) = (prefix.as_bytes().to_vec(), None, Vec::new());
        // Thousands of Events share a few leases; each is asked for once.
        let mut leases: HashMap<i64, Option<i64>> = HashMap::new();
        loop {
            let mut options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
            if let Some(at) = pinned {
                options = options.with_revision(at);
            }
            let answer = self.members.range(&from, options).await?;
            let revision = *pinned.get_or_insert_with(|| answer.header().map_or(0, |h| h.revision()));
            for pair in answer.kvs() {
                let expires = match pair.lease() {
                    0 => None,
                    id => match leases.get(&id) {
                        Some(known) => *known,
                        None => {
                            let left = self
                                .members
                                .call(|client| async move { client.lease_client().time_to_live(id, None).await })
                                .await?;
                            // A lease that has expired since the read reports -1.
                            let at = (left.ttl() > 0).then(|| now() + left.ttl() * 1000);
                            leases.insert(id, at);
                            at
                        }
                    },
                };
                out.push(Pair {
                    key: String::from_utf8_lossy(pair.key()).into_owned(),
                    revision: pair.mod_revision().cast_unsigned(),
                    value: Bytes::copy_from_slice(pair.value()),
                    expires,
                });
            }
            let read = out.len() as u64;
            // `count` covers the rest of the range only, so the total is a lower bound on later pages.
            progress(read, read.max(u64::try_from(answer.count()).unwrap_or(0)));
            match answer.kvs().last() {
                Some(last) if answer.more() => from = after(last.key()),
                _ => {
                    // An import can keep revisions only in ascending order.
                    out.sort_by_key(|p| p.revision);
                    return Ok((revision.cast_unsigned(), out));
                }
            }
        }
    }

    /// Returns the cluster's revision; 1 if nothing was ever written.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) async fn revision(&self) -> Result<u64, Error> {
        let answer = self.members.range(FILLER, GetOptions::new()).await?;
        Ok(self.members.saw(answer.header()).0)
    }

    /// Writes objects, which must be sorted by revision, as new keys. With `keep` the cluster must be empty:
    /// every object gets its old revision, and revisions in between are used up by a filler key. Values that
    /// are not encrypted are encoded as kube-apiserver would.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Refused`]; objects written before the error remain.
    pub(crate) async fn write(
        &self,
        objects: &[Object],
        media: MediaType,
        keep: bool,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let total = objects.len() as u64;
        let mut at = self.revision().await?;
        let mut filled = false;
        for (done, object) in objects.iter().enumerate() {
            // Revisions advance by writing; etcd offers no other way.
            while keep && at + 1 < object.revision {
                at = self.fill(at + 1).await?;
                filled = true;
            }
            let left = object.expires.map(|ms| (ms - now()) / 1000);
            // Expired meanwhile; etcd would delete it at once.
            if left.is_some_and(|seconds| seconds <= 0) {
                continue;
            }
            let lease = match left {
                None => 0,
                Some(seconds) => {
                    let grant = self
                        .members
                        .call(|client| async move { client.lease_client().grant(seconds, None).await });
                    grant.await?.id()
                }
            };
            // Encrypted values are bound to their key and not to an encoding; they are copied as they are.
            let value = match object.value.starts_with(ENCRYPTED) {
                true => object.value.clone(),
                false => values::encode(&object.value, media),
            };
            let attempts = AtomicUsize::new(0);
            let answer = self
                .members
                .call(|client| {
                    // If the answer to an attempt is lost, the next one finds the object in place.
                    attempts.fetch_add(1, Ordering::Relaxed);
                    let options = (lease != 0).then(|| PutOptions::new().with_lease(lease));
                    let txn = Txn::new()
                        // Never overwrites: a cluster in use must not be damaged by an import.
                        .when([Compare::mod_revision(&*object.key, CompareOp::Equal, 0)])
                        .and_then([TxnOp::put(&*object.key, value.to_vec(), options)])
                        .or_else([TxnOp::get(&*object.key, None)]);
                    async move { kv(&client).txn(txn).await }
                })
                .await?;
            if !answer.succeeded() {
                let there = first_pair(&answer.op_responses());
                let there = there.as_ref().map(|pair| pair.value());
                if !is_own_write(attempts.into_inner(), there, &value) {
                    return Err(Error::Exists(object.key.clone()));
                }
            }
            at = self.members.saw(answer.header()).0;
            if (done + 1) % 100 == 0 || done as u64 + 1 == total {
                progress(done as u64 + 1, total);
            }
        }
        // The filler has only advanced the revision; it is no object.
        if filled {
            let gone = self
                .members
                .call(|client| async move { kv(&client).delete(FILLER, None).await });
            gone.await?;
        }
        Ok(())
    }

    /// Makes a revision by writing the filler key, which names it. A repetition whose first attempt was executed
    /// after all does nothing: another revision could be that of the next object. Returns the cluster's revision.
    async fn fill(&self, revision: u64) -> Result<u64, Error> {
        let name = revision.to_string();
        let filled = self.members.call(|client| {
            let txn = Txn::new()
                // False also if there is no filler yet.
                .when([Compare::value(FILLER, CompareOp::Equal, &*name)])
                .or_else([TxnOp::put(FILLER, &*name, None)]);
            async move { kv(&client).txn(txn).await }
        });
        Ok(self.members.saw(filled.await?.header()).0)
    }

    /// Compacts the cluster at its current revision.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) async fn compact(&self) -> Result<u64, Error> {
        let revision = self.revision().await?;
        let done = self
            .members
            .call(|client| async move { kv(&client).compact(revision.cast_signed(), None).await })
            .await;
        match done {
            // Compacted already: nothing left to do.
            Err(e) if !e.is_compacted() => Err(e.into()),
            _ => Ok(revision),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::etcd_process::{self, Etcd};
    use super::*;

    #[test]
    fn pages_continue_after_a_key_that_is_not_text() {
        assert_eq!(after(b"/registry/pods/\xff"), b"/registry/pods/\xff\0");
    }

    #[test]
    fn only_a_repeated_write_may_find_its_own_value() {
        assert!(is_own_write(2, Some(b"a"), b"a"));
        assert!(!is_own_write(1, Some(b"a"), b"a"), "it is another program's");
        assert!(!is_own_write(2, Some(b"b"), b"a") && !is_own_write(2, None, b"a"));
    }

    #[tokio::test]
    async fn repeated_filling_makes_one_revision() {
        if !etcd_process::is_there() {
            return;
        }
        let etcd = Etcd::start(1);
        let access = Access {
            servers: etcd.servers(),
            ..Access::default()
        };
        let exchange = Exchange::connect(&access, Duration::from_secs(60))
            .await
            .expect("it answers");
        let before = exchange.revision().await.expect("it answers");
        for (next, made) in [(1, 1), (1, 1), (2, 2), (2, 2)] {
            assert_eq!(exchange.fill(before + next).await.expect("filled"), before + made);
        }
    }
}
