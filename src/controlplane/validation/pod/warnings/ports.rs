//! Warnings about conflicting container ports. Entry point: [`ports`].

use crate::apimachinery::field::quote;
use crate::apimachinery::value::Value;
use crate::interrupt::{checkpoint, pausing};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Upper bound on the conflicts examined per pod. Each port is compared with all earlier ones of the same
/// number and protocol, which is quadratic, and response headers hold fewer warnings anyway.
const MAX: usize = 1000;

/// Warns about ports with the same number and protocol, then about duplicate names.
pub(super) fn ports(out: &mut Vec<String>, containers: &[(&Value, String)]) {
    let repeated = repeated(containers);
    let mut seen: HashMap<(i64, &str), Vec<(&Value, String)>> = HashMap::new();
    let mut warned = 0;
    for (c, at) in containers {
        for (i, port) in c.get("ports").items().iter().enumerate() {
            checkpoint();
            let at = || format!("{at}.ports[{i}]");
            if !host(port).is_empty() && number(port, "hostPort") == 0 {
                out.push(format!("{}: hostIP set without hostPort: {}", at(), format_port(port)));
            }
            let key = number_and_protocol(port);
            // Almost all ports are unique: they cost neither an entry in the map nor a formatted path.
            if !repeated.contains(&key) {
                continue;
            }
            let at = at();
            let same = seen.entry(key).or_default();
            // Conflicts with differing host ports count towards the limit too: looking at them takes time.
            for (other, other_at) in same.iter().take(MAX.saturating_sub(warned)) {
                warned += 1;
                let (mine, theirs) = (number(port, "hostPort"), number(other, "hostPort"));
                let what = match () {
                    () if host(port) == host(other) && mine == theirs => "duplicate",
                    // Without a host port the definition only documents the container's port.
                    () if mine == 0 || theirs == 0 => "overlapping",
                    // The one without an address binds to all of them, including the other's.
                    () if mine == theirs && host(port).is_empty() != host(other).is_empty() => "dangerously ambiguous",
                    () => continue,
                };
                out.push(format!("{at}: {what} port definition with {other_at}"));
            }
            same.push((port, at));
        }
    }
    names(out, containers);
}

/// The numbers and protocols that more than one port has, usually none.
fn repeated<'v>(containers: &[(&'v Value, String)]) -> HashSet<(i64, &'v str)> {
    let ports = containers.iter().flat_map(|(c, _)| c.get("ports").items());
    let mut all: Vec<_> = ports.map(number_and_protocol).collect();
    // Sorting and comparing neighbours needs no hashing and less memory than a map of counts.
    all.sort_unstable_by(pausing(|a: &(i64, &str), b: &(i64, &str)| a.cmp(b)));
    let pairs = all.windows(2).filter(|pair| pair[0] == pair[1]);
    pairs.map(|pair| pair[0]).collect()
}

/// Warns about duplicate port names: selection by name finds only the first. Containers that do not keep
/// running (plain init and ephemeral ones) are skipped.
fn names(out: &mut Vec<String>, containers: &[(&Value, String)]) {
    let mut seen: HashMap<&str, (&str, usize)> = HashMap::new();
    for (c, container) in containers {
        let init = container.contains("initContainers[") && c.str_at(&["restartPolicy"]) != "Always";
        if init || container.contains("ephemeralContainers[") {
            continue;
        }
        for (i, port) in c.get("ports").items().iter().enumerate() {
            checkpoint();
            let name = port.str_at(&["name"]);
            if name.is_empty() {
                continue;
            }
            match seen.entry(name) {
                Entry::Occupied(first) => {
                    let (first_container, first_index) = first.get();
                    let first = format!("{first_container}.ports[{first_index}]");
                    out.push(format!(
                        "{container}.ports[{i}]: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                        quote(name)
                    ));
                }
                Entry::Vacant(free) => drop(free.insert((container, i))),
            }
        }
    }
}

fn number_and_protocol(port: &Value) -> (i64, &str) {
    (number(port, "containerPort"), port.str_at(&["protocol"]))
}

fn number(port: &Value, key: &str) -> i64 {
    port.get(key).as_i64().unwrap_or(0)
}

fn host(port: &Value) -> &str {
    port.str_at(&["hostIP"])
}

/// Formats a port like Go's `%+v`.
fn format_port(port: &Value) -> String {
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        port.str_at(&["name"]),
        number(port, "hostPort"),
        number(port, "containerPort"),
        port.str_at(&["protocol"]),
        host(port)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn duplicate_port_yields_number_and_name_warnings() {
        let c = json!({"ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}]});
        let mut out = Vec::new();
        ports(
            &mut out,
            &[(&c, "spec.containers[0]".into()), (&c, "spec.containers[1]".into())],
        );
        assert_eq!(
            out,
            [
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"http\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ]
        );
    }
}
