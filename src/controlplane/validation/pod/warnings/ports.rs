//! Ports that stand in one another's way.

use crate::apimachinery::field::quote;
use crate::apimachinery::value::Value;

/// Ports of all containers: the same number and protocol, and then the same name.
pub(super) fn ports(out: &mut Vec<String>, containers: &[(&Value, String)]) {
    let mut seen: Vec<(&Value, String)> = Vec::new();
    for (c, at) in containers {
        for (i, port) in c.get("ports").items().iter().enumerate() {
            let at = format!("{at}.ports[{i}]");
            if !host(port).is_empty() && number(port, "hostPort") == 0 {
                out.push(format!("{at}: hostIP set without hostPort: {}", shown(port)));
            }
            let same = |o: &&(&Value, String)| {
                number(o.0, "containerPort") == number(port, "containerPort")
                    && o.0.str_at(&["protocol"]) == port.str_at(&["protocol"])
            };
            for (other, other_at) in seen.iter().filter(same) {
                let (mine, theirs) = (number(port, "hostPort"), number(other, "hostPort"));
                let what = match () {
                    () if host(port) == host(other) && mine == theirs => "duplicate",
                    () if mine == 0 || theirs == 0 => "overlapping",
                    () if mine == theirs && host(port).is_empty() != host(other).is_empty() => "dangerously ambiguous",
                    () => continue,
                };
                out.push(format!("{at}: {what} port definition with {other_at}"));
            }
            seen.push((port, at));
        }
    }
    names(out, containers);
}

/// Probes and services that name a port get the first one of that name. Containers that end first do not count.
fn names(out: &mut Vec<String>, containers: &[(&Value, String)]) {
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (c, at) in containers {
        let init = at.contains("initContainers[") && c.str_at(&["restartPolicy"]) != "Always";
        if init || at.contains("ephemeralContainers[") {
            continue;
        }
        for (i, port) in c.get("ports").items().iter().enumerate() {
            let (name, at) = (port.str_at(&["name"]), format!("{at}.ports[{i}]"));
            if name.is_empty() {
                continue;
            }
            match seen.iter().find(|(n, _)| *n == name) {
                Some((_, first)) => out.push(format!(
                    "{at}: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                    quote(name)
                )),
                None => seen.push((name, at)),
            }
        }
    }
}

fn number(port: &Value, key: &str) -> i64 {
    port.get(key).as_i64().unwrap_or(0)
}

fn host(port: &Value) -> &str {
    port.str_at(&["hostIP"])
}

/// Go's `%+v`.
fn shown(port: &Value) -> String {
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
    fn a_port_that_is_there_twice_is_told_with_its_name() {
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
