//! Ranges of cluster IPs: those of the flags, plus those of ServiceCIDR objects.
//!
//! [`ServiceAllocators::apply_service_cidrs`] applies the ServiceCIDR objects; the other methods allocate and
//! release across all ranges. Watching the objects is left to the caller.

use super::ServiceAllocators;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{IpAllocator, IpError, IpFamily};
use crate::controlplane::fields::strings;
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::sync::Arc;

/// Owner of addresses whose actual owner is unknown.
const UNKNOWN_OWNER: &str = "?";

/// Ranges added to, or closed among, the flags' ranges by ServiceCIDR objects. Readers see snapshots without
/// locking.
#[derive(Debug, Default)]
pub(crate) struct ServiceCidrRanges {
    /// Ranges in addition to those of the flags.
    additional: ArcSwap<Vec<Arc<IpAllocator>>>,
    /// Ranges of the flags whose ServiceCIDR object is being deleted or is not ready.
    disabled: ArcSwap<Vec<String>>,
}

/// True unless the object is being deleted or its `Ready` condition is not true. Without the condition it
/// counts as ready, as in upstream's `isReady`.
fn is_usable(cidr: &Value) -> bool {
    let conditions = cidr.at(&["status", "conditions"]).items();
    let ready = conditions.iter().find(|c| c.str_at(&["type"]) == "Ready");
    !cidr.is_being_deleted() && ready.is_none_or(|c| c.str_at(&["status"]) == "True")
}

impl ServiceAllocators {
    /// Applies the current ServiceCIDR objects. Ranges of a family that the flags do not configure are
    /// ignored. In new ranges, the addresses in `known` are marked as allocated; existing ranges keep their
    /// state.
    pub(crate) fn apply_service_cidrs(&self, objects: &[Value], known: &[(IpAddr, String)]) {
        let ranges_of = |v: &Value| -> Vec<IpAllocator> {
            let cidrs = strings(v.at(&["spec", "cidrs"]));
            cidrs.into_iter().filter_map(IpAllocator::parse).collect()
        };
        let usable: Vec<IpAllocator> = objects.iter().filter(|o| is_usable(o)).flat_map(ranges_of).collect();
        let listed: Vec<String> = objects.iter().flat_map(ranges_of).map(|r| r.to_string()).collect();
        let offered: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let own: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        let disabled = own.iter().filter(|r| listed.contains(r) && !offered.contains(r));
        // The two snapshots are not swapped together: a write in between sees one of the changes late, as if it
        // had run earlier.
        self.service_cidrs.disabled.store(Arc::new(disabled.cloned().collect()));

        let before = self.service_cidrs.additional.load_full();
        let mut additional: Vec<Arc<IpAllocator>> = Vec::new();
        for range in usable {
            let text = range.to_string();
            let configured = self.ranges.iter().any(|r| r.family() == range.family());
            if !configured || own.contains(&text) || additional.iter().any(|r| r.to_string() == text) {
                continue;
            }
            additional.push(match before.iter().find(|r| r.to_string() == text) {
                // By its text: a range keeps its allocations while any object offers it.
                Some(same) => same.clone(),
                None => {
                    for (ip, owner) in known {
                        // `NotInRange` is expected for addresses of other ranges.
                        let _ = range.allocate(*ip, owner);
                    }
                    Arc::new(range)
                }
            });
        }
        self.service_cidrs.additional.store(Arc::new(additional));
    }

    /// Returns the first `Some` of `f` over the open ranges, those of the flags first.
    fn first<R>(&self, mut f: impl FnMut(&IpAllocator) -> Option<R>) -> Option<R> {
        let disabled = self.service_cidrs.disabled.load();
        let own = self.ranges.iter().filter(|r| !disabled.contains(&r.to_string()));
        own.map(&mut f)
            .find_map(|r| r)
            .or_else(|| self.service_cidrs.additional.load().iter().find_map(|r| f(r)))
    }

    /// The flags' range of a family.
    pub(super) fn range_for(&self, family: IpFamily) -> Option<&IpAllocator> {
        self.ranges.iter().find(|r| r.family() == family)
    }

    /// True if some open range contains this address.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.first(|r| r.contains(ip).then_some(())).is_some()
    }

    /// Allocates this address, in all ranges that contain it.
    ///
    /// # Errors
    /// [`IpError`]
    pub(super) fn allocate_ip(&self, ip: IpAddr, owner: &str) -> Result<(), IpError> {
        let taken = self.first(|r| r.contains(ip).then(|| r.allocate(ip, owner)));
        taken.unwrap_or(Err(IpError::NotInRange))?;
        self.everywhere(ip, |r| {
            // In overlapping ranges, the first one determines the result.
            let _ = r.allocate(ip, owner);
        });
        Ok(())
    }

    /// Allocates any address of a family, preferring the flags' range.
    ///
    /// # Errors
    /// [`IpError::Full`]
    pub(super) fn allocate_next_ip(&self, family: IpFamily, owner: &str) -> Result<IpAddr, IpError> {
        let ip = self
            .first(|r| (r.family() == family).then(|| r.allocate_next(owner).ok()).flatten())
            .ok_or(IpError::Full)?;
        // Mirrors the allocation into overlapping ranges; the range that made it refuses the repetition.
        self.everywhere(ip, |r| {
            let _ = r.allocate(ip, owner);
        });
        Ok(ip)
    }

    /// Releases an address if this owner holds it.
    pub(super) fn release_ip(&self, ip: IpAddr, owner: &str) {
        self.everywhere(ip, |r| r.release(ip, owner));
    }

    /// Reassigns an address to an unknown owner: `owner` allocated it, but an IPAddress object of another one
    /// exists.
    pub(super) fn reassign(&self, ip: IpAddr, owner: &str) {
        self.release_ip(ip, owner);
        self.mark_allocated(ip, UNKNOWN_OWNER);
    }

    /// Marks an address as allocated after its IPAddress object was created.
    pub(crate) fn mark_allocated(&self, ip: IpAddr, owner: &str) {
        self.everywhere(ip, |r| {
            // Refused if it is allocated already, normally by the write that created the object.
            let _ = r.allocate(ip, owner);
        });
    }

    /// Releases an address after its IPAddress object was deleted.
    pub(crate) fn mark_deleted(&self, ip: IpAddr, owner: &str) {
        self.release_ip(ip, owner);
        // The address may have been reassigned (see `reassign`) before its object was deleted.
        self.release_ip(ip, UNKNOWN_OWNER);
    }

    fn everywhere(&self, ip: IpAddr, f: impl Fn(&IpAllocator)) {
        self.ranges.iter().filter(|r| r.contains(ip)).for_each(&f);
        for range in self.service_cidrs.additional.load().iter().filter(|r| r.contains(ip)) {
            f(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::allocators::PortAllocator;
    use crate::json;

    fn allocators() -> ServiceAllocators {
        ServiceAllocators {
            ranges: vec![IpAllocator::parse("10.0.0.0/30").unwrap()],
            service_cidrs: ServiceCidrRanges::default(),
            ports: PortAllocator::new(30000, 30001),
        }
    }

    fn cidr(text: &str, ready: &str) -> Value {
        let mut v = json!({"metadata": {}, "spec": {"cidrs": [(text)]}});
        if !ready.is_empty() {
            v.set(&["status", "conditions"], json!([{"type": "Ready", "status": (ready)}]));
        }
        v
    }

    fn any(n: &ServiceAllocators) -> Result<String, IpError> {
        n.allocate_next_ip(IpFamily::V4, "ns/a").map(|ip| ip.to_string())
    }

    #[test]
    fn additional_range_is_used_when_the_first_is_full() {
        let n = allocators();
        any(&n).unwrap();
        any(&n).unwrap();
        assert_eq!(any(&n), Err(IpError::Full));
        let taken = ("10.9.0.1".parse().unwrap(), "ns/b".to_owned());
        n.apply_service_cidrs(&[cidr("10.9.0.0/30", ""), cidr("fd00::/64", "")], &[taken]);
        assert_eq!(any(&n), Ok("10.9.0.2".to_owned()));
        assert_eq!(any(&n), Err(IpError::Full));
        n.mark_deleted("10.9.0.1".parse().unwrap(), "ns/b");
        n.apply_service_cidrs(&[cidr("10.9.0.0/30", "False")], &[]);
        assert_eq!(any(&n), Err(IpError::Full));
    }

    #[test]
    fn deleted_range_allocates_nothing() {
        let n = allocators();
        let mut going = cidr("10.0.0.0/30", "True");
        going.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        n.apply_service_cidrs(&[going], &[]);
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(
            (any(&n), n.allocate_ip(ip, "ns/a")),
            (Err(IpError::Full), Err(IpError::NotInRange))
        );
        n.apply_service_cidrs(&[], &[]);
        assert_eq!(n.allocate_ip(ip, "ns/a"), Ok(()));
    }

    #[test]
    fn overlapping_ranges_share_allocations() {
        let n = allocators();
        n.apply_service_cidrs(&[cidr("10.0.0.0/29", "True")], &[]);
        let ip = "10.0.0.2".parse().unwrap();
        n.allocate_ip(ip, "ns/a").unwrap();
        let all: Vec<String> = (0..5).map(|_| any(&n).unwrap()).collect();
        assert!(!all.contains(&"10.0.0.2".to_owned()));
        n.release_ip(ip, "ns/a");
        assert_eq!(any(&n), Ok("10.0.0.2".to_owned()));
    }
}
