//! Where cluster IPs come from: the ranges of the flags, and those of further ServiceCIDR objects.

use super::ServiceNumbers;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::allocators::{Family, IpError, IpRange};
use crate::controlplane::fields::strings;
use arc_swap::ArcSwap;
use std::net::IpAddr;
use std::sync::Arc;

/// Who has an address whose owner is not known.
const SOMEBODY: &str = "?";

/// What ServiceCIDR objects add to the flags' ranges, and what they take away.
#[derive(Debug, Default)]
pub struct Followed {
    /// Ranges beside those of the flags.
    more: ArcSwap<Vec<Arc<IpRange>>>,
    /// Ranges of the flags that no object offers any more.
    closed: ArcSwap<Vec<String>>,
}

/// Offered while it is not going away and nobody says that it is not ready.
fn is_usable(cidr: &Value) -> bool {
    let conditions = cidr.at(&["status", "conditions"]).items();
    let ready = conditions.iter().find(|c| c.str_at(&["type"]) == "Ready");
    !cidr.is_being_deleted() && ready.is_none_or(|c| c.str_at(&["status"]) == "True")
}

impl ServiceNumbers {
    /// Takes over what the ServiceCIDR objects say. Families are the flags' matter: a range of another one is not used.
    /// `known` addresses are taken in ranges that are new.
    pub fn follow(&self, objects: &[Value], known: &[(IpAddr, String)]) {
        let ranges_of = |v: &Value| -> Vec<IpRange> {
            let cidrs = strings(v.at(&["spec", "cidrs"]));
            cidrs.into_iter().filter_map(IpRange::parse).collect()
        };
        let usable: Vec<IpRange> = objects.iter().filter(|o| is_usable(o)).flat_map(ranges_of).collect();
        let listed: Vec<String> = objects.iter().flat_map(ranges_of).map(|r| r.to_string()).collect();
        let offered: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let own: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
        let closed = own.iter().filter(|r| listed.contains(r) && !offered.contains(r));
        self.followed.closed.store(Arc::new(closed.cloned().collect()));

        let before = self.followed.more.load_full();
        let mut more: Vec<Arc<IpRange>> = Vec::new();
        for range in usable {
            let text = range.to_string();
            let configured = self.ranges.iter().any(|r| r.family() == range.family());
            if !configured || own.contains(&text) || more.iter().any(|r| r.to_string() == text) {
                continue;
            }
            more.push(match before.iter().find(|r| r.to_string() == text) {
                Some(same) => same.clone(),
                None => {
                    for (ip, owner) in known {
                        // Addresses of other ranges are not this one's.
                        let _ = range.take(*ip, owner);
                    }
                    Arc::new(range)
                }
            });
        }
        self.followed.more.store(Arc::new(more));
    }

    /// Does `f` to the open ranges until it has an answer.
    fn first<R>(&self, mut f: impl FnMut(&IpRange) -> Option<R>) -> Option<R> {
        let closed = self.followed.closed.load();
        let own = self.ranges.iter().filter(|r| !closed.contains(&r.to_string()));
        own.map(&mut f)
            .find_map(|r| r)
            .or_else(|| self.followed.more.load().iter().find_map(|r| f(r)))
    }

    /// The default range of a family.
    pub(super) fn range_for(&self, family: Family) -> Option<&IpRange> {
        self.ranges.iter().find(|r| r.family() == family)
    }

    /// True where some open range has this address.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.first(|r| r.contains(ip).then_some(())).is_some()
    }

    /// Takes this address, from all ranges that have it.
    ///
    /// # Errors
    /// [`IpError`]
    pub(super) fn take_ip(&self, ip: IpAddr, owner: &str) -> Result<(), IpError> {
        let taken = self.first(|r| r.contains(ip).then(|| r.take(ip, owner)));
        taken.unwrap_or(Err(IpError::NotInRange))?;
        self.everywhere(ip, |r| {
            // Where ranges overlap, the first decides.
            let _ = r.take(ip, owner);
        });
        Ok(())
    }

    /// Takes any address of a family, from the flags' range while it has one.
    ///
    /// # Errors
    /// [`IpError::Full`]
    pub(super) fn take_any_ip(&self, family: Family, owner: &str) -> Result<IpAddr, IpError> {
        let ip = self
            .first(|r| (r.family() == family).then(|| r.take_any(owner).ok()).flatten())
            .ok_or(IpError::Full)?;
        self.everywhere(ip, |r| {
            let _ = r.take(ip, owner);
        });
        Ok(ip)
    }

    /// Gives an address back, where this owner has it.
    pub(super) fn give_back_ip(&self, ip: IpAddr, owner: &str) {
        self.everywhere(ip, |r| r.give_back(ip, owner));
    }

    /// The owner turned out not to have it: somebody has an IPAddress object of this name.
    pub(super) fn is_anothers(&self, ip: IpAddr, owner: &str) {
        self.give_back_ip(ip, owner);
        self.address_made(ip, SOMEBODY);
    }

    /// An IPAddress object was made.
    pub fn address_made(&self, ip: IpAddr, owner: &str) {
        self.everywhere(ip, |r| {
            let _ = r.take(ip, owner);
        });
    }

    /// An IPAddress object is gone.
    pub fn address_gone(&self, ip: IpAddr, owner: &str) {
        self.give_back_ip(ip, owner);
        self.give_back_ip(ip, SOMEBODY);
    }

    fn everywhere(&self, ip: IpAddr, f: impl Fn(&IpRange)) {
        self.ranges.iter().filter(|r| r.contains(ip)).for_each(&f);
        for range in self.followed.more.load().iter().filter(|r| r.contains(ip)) {
            f(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::allocators::PortRange;
    use crate::json;

    fn numbers() -> ServiceNumbers {
        ServiceNumbers {
            ranges: vec![IpRange::parse("10.0.0.0/30").unwrap()],
            followed: Followed::default(),
            ports: PortRange::new(30000, 30001),
        }
    }

    fn cidr(text: &str, ready: &str) -> Value {
        let mut v = json!({"metadata": {}, "spec": {"cidrs": [(text)]}});
        if !ready.is_empty() {
            v.set(&["status", "conditions"], json!([{"type": "Ready", "status": (ready)}]));
        }
        v
    }

    fn any(n: &ServiceNumbers) -> Result<String, IpError> {
        n.take_any_ip(Family::V4, "ns/a").map(|ip| ip.to_string())
    }

    #[test]
    fn a_further_range_is_used_when_the_first_is_full() {
        let n = numbers();
        any(&n).unwrap();
        any(&n).unwrap();
        assert_eq!(any(&n), Err(IpError::Full));
        let taken = ("10.9.0.1".parse().unwrap(), "ns/b".to_owned());
        n.follow(&[cidr("10.9.0.0/30", ""), cidr("fd00::/64", "")], &[taken]);
        assert_eq!(any(&n), Ok("10.9.0.2".to_owned()));
        assert_eq!(any(&n), Err(IpError::Full));
        n.address_gone("10.9.0.1".parse().unwrap(), "ns/b");
        n.follow(&[cidr("10.9.0.0/30", "False")], &[]);
        assert_eq!(any(&n), Err(IpError::Full));
    }

    #[test]
    fn a_range_that_goes_away_gives_nothing() {
        let n = numbers();
        let mut going = cidr("10.0.0.0/30", "True");
        going.set_meta("deletionTimestamp", "2026-01-01T00:00:00Z");
        n.follow(&[going], &[]);
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(
            (any(&n), n.take_ip(ip, "ns/a")),
            (Err(IpError::Full), Err(IpError::NotInRange))
        );
        n.follow(&[], &[]);
        assert_eq!(n.take_ip(ip, "ns/a"), Ok(()));
    }

    #[test]
    fn overlapping_ranges_know_of_one_another() {
        let n = numbers();
        n.follow(&[cidr("10.0.0.0/29", "True")], &[]);
        let ip = "10.0.0.2".parse().unwrap();
        n.take_ip(ip, "ns/a").unwrap();
        let all: Vec<String> = (0..5).map(|_| any(&n).unwrap()).collect();
        assert!(!all.contains(&"10.0.0.2".to_owned()));
        n.give_back_ip(ip, "ns/a");
        assert_eq!(any(&n), Ok("10.0.0.2".to_owned()));
    }
}
