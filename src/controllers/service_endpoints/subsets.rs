//! [`repack`]: the subsets of an Endpoints object in their canonical form (`pkg/api/v1/endpoints/util.go`): addresses that
//! offer the same ports share a subset. [`truncate`] bounds their number.
//!
//! Upstream sorts ports and subsets by a hash, which clients cannot rely on; here they are sorted by content.

use super::workloads::Port;
use crate::apimachinery::value::{Map, Str, Value};
use std::collections::BTreeMap;

/// Addresses of an Endpoints object; upstream's limit.
pub const MAX: usize = 1000;

/// An element of `subsets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subset {
    pub ready: Vec<Value>,
    pub unready: Vec<Value>,
    pub ports: Vec<Port>,
}

/// Identifies an address: the IP and the target's UID.
type Key = (Str, Str);

impl Subset {
    pub fn from_value(subset: &Value) -> Self {
        Self {
            ready: subset.get("addresses").items().to_vec(),
            unready: subset.get("notReadyAddresses").items().to_vec(),
            ports: subset.get("ports").items().iter().map(Port::from_value).collect(),
        }
    }

    pub fn to_value(&self) -> Value {
        let mut subset = Map::new();
        for (key, addresses) in [("addresses", &self.ready), ("notReadyAddresses", &self.unready)] {
            if !addresses.is_empty() {
                subset.insert(key, addresses.clone());
            }
        }
        let port = |p: &Port| {
            let mut port = Map::new();
            port.insert("port", p.number);
            port.insert("protocol", p.protocol.as_str());
            for (key, value) in [("name", &p.name), ("appProtocol", &p.application)] {
                if !value.is_empty() {
                    port.insert(key, value.as_str());
                }
            }
            Value::Object(port)
        };
        if !self.ports.is_empty() {
            subset.insert("ports", self.ports.iter().map(port).collect::<Vec<_>>());
        }
        subset.into()
    }
}

/// The canonical form. An address that is ready and not ready under the same port is not ready.
pub fn repack(subsets: &[Subset]) -> Vec<Subset> {
    let mut addresses: BTreeMap<Key, &Value> = BTreeMap::new();
    // `None` stands for no ports at all.
    let mut by_port: BTreeMap<Option<&Port>, BTreeMap<Key, bool>> = BTreeMap::new();
    for subset in subsets {
        let ready = subset.ready.iter().map(|a| (a, true));
        let all: Vec<(Key, bool)> = ready
            .chain(subset.unready.iter().map(|a| (a, false)))
            .map(|(address, ready)| {
                let key: Key = (
                    address.str_at(&["ip"]).into(),
                    address.str_at(&["targetRef", "uid"]).into(),
                );
                addresses.entry(key.clone()).or_insert(address);
                (key, ready)
            })
            .collect();
        let none = subset.ports.is_empty().then_some(None);
        for port in subset.ports.iter().map(Some).chain(none) {
            let of = by_port.entry(port).or_default();
            for (key, ready) in &all {
                let known = of.entry(key.clone()).or_insert(true);
                *known = *known && *ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<Key, bool>, Vec<Port>> = BTreeMap::new();
    for (port, of) in by_port {
        by_addresses.entry(of).or_default().extend(port.cloned());
    }
    let pick = |of: &BTreeMap<Key, bool>, ready: bool| -> Vec<Value> {
        let keys = of.iter().filter(|(_, r)| **r == ready);
        keys.map(|(key, _)| addresses[key].clone()).collect()
    };
    let packed = by_addresses.into_iter().map(|(of, ports)| Subset {
        ready: pick(&of, true),
        unready: pick(&of, false),
        ports,
    });
    packed.collect()
}

/// Leaves at most [`MAX`] addresses, spread over the subsets by their size, ready ones first. Returns whether any were
/// left out.
pub fn truncate(subsets: &mut [Subset]) -> bool {
    let ready: usize = subsets.iter().map(|s| s.ready.len()).sum();
    let unready: usize = subsets.iter().map(|s| s.unready.len()).sum();
    if ready + unready <= MAX {
        return false;
    }
    let drop_ready = ready > MAX;
    let (total, room) = if drop_ready {
        (ready, MAX)
    } else {
        (unready, MAX - ready)
    };
    let mut left = room;
    for subset in subsets {
        let of = match drop_ready {
            true => {
                subset.unready.clear();
                &mut subset.ready
            }
            false => &mut subset.unready,
        };
        let share = (of.len() * room).div_ceil(total).min(left);
        of.truncate(share);
        left -= of.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn addresses(ips: impl IntoIterator<Item = usize>) -> Vec<Value> {
        ips.into_iter()
            .map(|n| json!({"ip": (format!("10.0.{}.{}", n / 256, n % 256))}))
            .collect()
    }

    fn port(name: &str) -> Port {
        Port::from_value(&json!({"name": name, "port": 80}))
    }

    #[test]
    fn addresses_with_the_same_ports_share_a_subset() {
        let one = |ip, name| Subset {
            ready: addresses([ip]),
            unready: Vec::new(),
            ports: vec![port(name)],
        };
        let mut subsets = vec![one(1, "a"), one(2, "a"), one(2, "b"), one(1, "b"), one(3, "c")];
        subsets.push(Subset {
            unready: addresses([2]),
            ..one(9, "c")
        });
        subsets[5].ready.clear();
        let packed = repack(&subsets);
        let found: Vec<(usize, usize, usize)> = packed
            .iter()
            .map(|s| (s.ready.len(), s.unready.len(), s.ports.len()))
            .collect();
        assert_eq!(found, [(2, 0, 2), (1, 1, 1)]);
        assert_eq!(repack(&packed), packed);
        let again: Vec<Subset> = packed.iter().map(|s| Subset::from_value(&s.to_value())).collect();
        assert_eq!(again, packed);
    }

    #[test]
    fn an_address_without_ports_is_kept() {
        let subset = Subset {
            ready: addresses([1]),
            ..Subset::default()
        };
        assert_eq!(repack(std::slice::from_ref(&subset)), std::slice::from_ref(&subset));
    }

    #[test]
    fn too_many_addresses_are_left_out_unready_ones_first() {
        let subset = |ready, unready| Subset {
            ready: addresses(0..ready),
            unready: addresses(0..unready),
            ports: Vec::new(),
        };
        let lengths =
            |all: &[Subset]| -> Vec<(usize, usize)> { all.iter().map(|s| (s.ready.len(), s.unready.len())).collect() };
        let mut few = [subset(600, 400)];
        assert!(!truncate(&mut few));
        let mut unready = [subset(300, 400), subset(500, 400)];
        assert!(truncate(&mut unready));
        assert_eq!(lengths(&unready), [(300, 100), (500, 100)]);
        let mut ready = [subset(1000, 5), subset(1000, 5)];
        assert!(truncate(&mut ready));
        assert_eq!(lengths(&ready), [(500, 0), (500, 0)]);
    }
}
