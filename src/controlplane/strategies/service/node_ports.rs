//! The record of node ports in the store, which makes several gateways, and a kube-apiserver beside them,
//! agree: upstream's RangeAllocation at `ranges/servicenodeports`, a bitmap that is changed by
//! compare-and-swap (`pkg/registry/core/service/allocator/storage`).
//!
//! Start at [`NodePortRecord`]. [`Claim`] is one attempt to claim ports; [`Repair`] rebuilds the record from
//! the stored Services, as upstream's `portallocator/controller/repair.go`.

use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::storage::{Draft, Entry, Error, MinRevision, Precondition, Revision, Storage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The key below the prefix of ranges.
const KEY: &str = "servicenodeports";
/// Passes of the repair in which a port that no Service holds stays claimed, because its Service may be about
/// to be stored. Upstream's `numRepairsBeforeLeakCleanup`.
const PASSES: u32 = 3;

/// Reads and changes the record in the store.
pub(crate) struct NodePortRecord {
    storage: Arc<dyn Storage>,
    first: u16,
    last: u16,
    /// Claims of this process wait for each other instead of failing each other's compare-and-swap.
    claiming: tokio::sync::Mutex<()>,
}

/// The record as it was read, to be changed and written back.
pub(crate) struct Claim {
    /// The ports that are claimed.
    pub ports: BTreeSet<u16>,
    found: Option<StoredObject>,
}

struct StoredObject {
    revision: Revision,
    object: Value,
}

/// Finds leaked ports over several passes.
#[derive(Default)]
pub(crate) struct Repair {
    /// The passes that a leaked port is kept for.
    leaks: BTreeMap<u16, u32>,
}

// === impl NodePortRecord ===

impl NodePortRecord {
    /// The record of these ports in a storage bound to the prefix of ranges.
    pub(crate) fn new(storage: Arc<dyn Storage>, (first, last): (u16, u16)) -> Self {
        Self {
            storage,
            first,
            last,
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until no other claim of this process is under way.
    pub(crate) async fn lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.claiming.lock().await
    }

    /// Reads the record: at least as new as every claim acknowledged before, by any gateway.
    ///
    /// # Errors
    /// The store's, or 500 if the record is damaged.
    pub(crate) async fn read(&self) -> Result<Claim> {
        let Some(entry) = self.storage.get(KEY, MinRevision::Latest).await.map_err(unreadable)? else {
            return Ok(Claim {
                ports: BTreeSet::new(),
                found: None,
            });
        };
        self.claim(&entry)
    }

    fn claim(&self, entry: &Entry) -> Result<Claim> {
        let object = entry.decode();
        let bits = STANDARD.decode(object.str_at(&["data"]));
        let bits = bits.map_err(|e| Status::internal(format!("the record of node ports is damaged: {e}")))?;
        // Written with another `--service-node-port-range`, it counts from another port.
        let first = object
            .str_at(&["range"])
            .split_once('-')
            .and_then(|(first, _)| first.parse().ok());
        let first: u16 = first.unwrap_or(self.first);
        let set = ports(&bits).filter_map(|n| first.checked_add(n));
        Ok(Claim {
            // A port outside the current range cannot be allocated any more; the next write drops it from the
            // record.
            ports: set.filter(|p| (self.first..=self.last).contains(p)).collect(),
            found: Some(StoredObject {
                revision: entry.revision,
                object,
            }),
        })
    }

    /// Writes a changed record. Returns false if it has changed since it was read.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn write(&self, claim: Claim) -> Result<bool> {
        let (precondition, mut object) = match claim.found {
            Some(found) => (Precondition::Unchanged(found.revision), found.object),
            None => (
                Precondition::Absent,
                crate::json!({"apiVersion": "v1", "kind": "RangeAllocation", "metadata": {"creationTimestamp": null}}),
            ),
        };
        let numbers = claim.ports.iter().filter_map(|p| p.checked_sub(self.first));
        object.set(&["range"], format!("{}-{}", self.first, self.last));
        object.set(&["data"], STANDARD.encode(bytes(numbers)));
        match self
            .storage
            .put(KEY, precondition, Draft::new(&object, Vec::new()), None)
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::Conflict(_)) => Ok(false),
            Err(other) => Err(unreadable(other)),
        }
    }

    /// Frees ports. Failures are logged: the repair frees what stays claimed.
    pub(crate) async fn release(&self, freed: &BTreeSet<u16>) {
        let outcome: Result<()> = async {
            // Held over the retries: another claim of this process in between would fail this write.
            let _guard = self.lock().await;
            loop {
                let mut claim = self.read().await?;
                let before = claim.ports.len();
                claim.ports.retain(|p| !freed.contains(p));
                if claim.ports.len() == before || self.write(claim).await? {
                    return Ok(());
                }
            }
        }
        .await;
        if let Err(e) = outcome {
            tracing::warn!(ports = ?freed, "node ports were not released: {}", e.message);
        }
    }

    /// Makes the record agree with the ports that Services hold. `held` lists them, and is called after the
    /// record was read, so that a Service stored in between is not taken for a leak.
    ///
    /// # Errors
    /// The store's, or those of `held`.
    pub(crate) async fn repair<F>(&self, repair: &mut Repair, held: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<BTreeSet<u16>>>,
    {
        loop {
            let mut claim = self.read().await?;
            let held = held().await?;
            let is_current = claim.is_of(self.first, self.last);
            // Stored only after the write: a pass that lost the compare-and-swap is repeated and must not
            // count twice.
            let mut leaks = repair.leaks.clone();
            let wanted = rebuilt(&claim.ports, &held, &mut leaks);
            // Without a record, no port is claimed: a first start has nothing to write.
            let is_current = is_current || (claim.found.is_none() && wanted.is_empty());
            if claim.ports != wanted || !is_current {
                claim.ports = wanted;
                if !self.write(claim).await? {
                    continue;
                }
            }
            repair.leaks = leaks;
            return Ok(());
        }
    }
}

impl Claim {
    /// Whether it was written with this range.
    fn is_of(&self, first: u16, last: u16) -> bool {
        let range = format!("{first}-{last}");
        self.found
            .as_ref()
            .is_some_and(|found| found.object.str_at(&["range"]) == range)
    }
}

/// The ports that are held, and those that leaked less than [`PASSES`] passes ago.
fn rebuilt(claimed: &BTreeSet<u16>, held: &BTreeSet<u16>, leaks: &mut BTreeMap<u16, u32>) -> BTreeSet<u16> {
    leaks.retain(|port, _| claimed.contains(port) && !held.contains(port));
    let mut out = held.clone();
    for port in claimed.difference(held) {
        let left = leaks.entry(*port).or_insert(PASSES);
        if *left > 0 {
            *left -= 1;
            out.insert(*port);
        } else {
            tracing::warn!(port, "a node port that no Service has is freed");
        }
    }
    // Freed ports are forgotten: if one leaks again, its passes start anew.
    leaks.retain(|port, _| out.contains(port));
    out
}

fn unreadable(e: Error) -> Status {
    Status::internal(format!("the record of node ports: {e}"))
}

/// The numbers of the bits that are set in a big-endian integer, as Go's `big.Int` has them. At most 65,536,
/// since there are no more ports.
fn ports(integer: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let bytes = (0u32..=u32::from(u16::MAX) / 8).zip(integer.iter().rev());
    bytes.flat_map(|(i, byte)| {
        let set = (0..8).filter(move |bit| byte & (1 << bit) != 0);
        set.filter_map(move |bit| u16::try_from(i * 8 + bit).ok())
    })
}

/// The big-endian integer with these bits set, without leading zeros.
fn bytes(numbers: impl Iterator<Item = u16>) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for n in numbers {
        let at = usize::from(n / 8);
        if out.len() <= at {
            out.resize(at + 1, 0);
        }
        out[at] |= 1 << (n % 8);
    }
    // Built with the least significant byte first, so that it could grow at the end.
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bitmap_is_a_big_endian_integer() {
        assert_eq!(bytes([0u16, 9].into_iter()), [0b10, 0b1]);
        assert_eq!(ports(&[0b10, 0b1]).collect::<Vec<_>>(), [0, 9]);
        assert_eq!(bytes(std::iter::empty()), [0u8; 0]);
        assert_eq!(ports(&[0xff; 1 << 16]).count(), 1 << 16, "a damaged record is bounded");
    }

    proptest! {
        #[test]
        fn bitmaps_round_trip(set in proptest::collection::btree_set(any::<u16>(), 0..200)) {
            let encoded = bytes(set.iter().copied());
            prop_assert!(encoded.first() != Some(&0));
            prop_assert_eq!(ports(&encoded).collect::<BTreeSet<_>>(), set);
        }
    }

    #[test]
    fn a_leaked_port_is_freed_after_three_passes() {
        let (claimed, held) = (BTreeSet::from([1, 2]), BTreeSet::from([2, 3]));
        let mut leaks = BTreeMap::new();
        for _ in 0..PASSES {
            assert_eq!(rebuilt(&claimed, &held, &mut leaks), BTreeSet::from([1, 2, 3]));
        }
        assert_eq!(rebuilt(&claimed, &held, &mut leaks), held);
        assert!(leaks.is_empty());
    }
}
