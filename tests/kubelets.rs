//! kubectl through the gateway to a kubelet: logs, exec, errors while the kubelet is down, and
//! refused loopback addresses.

mod support;

use support::Gateway;
use support::kubelet::{Kubelet, flags, make_node};

fn pod(name: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: worker\n  \
         automountServiceAccountToken: false\n  containers: [{{name: {container}, image: a}}]\n"
    )
}

fn with_node(g: &Gateway, port: u16) {
    make_node(g, port);
    for (name, container) in [("p", "main"), ("q", "broken")] {
        g.kubectl_in(&["create", "-f", "-"], Some(&pod(name, container)));
    }
}

#[test]
fn logs_exec_and_node_proxy_reach_the_kubelet() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kubelet = Kubelet::start(dir.path());
    let flags = flags(dir.path());
    let g = Gateway::start_with(dir.path(), &flags.each_ref().map(String::as_str));
    with_node(&g, kubelet.port);

    assert_eq!(
        g.kubectl(&["logs", "p", "--tail=5", "--timestamps", "-f"]),
        "asked /containerLogs/default/p/main?follow=true&tailLines=5&timestamps=true\n"
    );
    let refused = g.kubectl_fails(&["logs", "q"], None);
    assert!(refused.contains("the runtime is down"), "{refused}");

    assert_eq!(
        g.kubectl(&["exec", "p", "--", "echo", "a b"]),
        "spdy /exec/default/p/main?command=echo&command=a+b&error=1&output=1\n"
    );
    assert_eq!(
        g.kubectl_in(&["exec", "-i", "p", "--", "cat"], Some("through the tunnel\n")),
        "spdy /exec/default/p/main?command=cat&error=1&input=1&output=1\nthrough the tunnel\n"
    );

    for node in ["worker", "worker:80"] {
        let refused = g.kubectl_fails(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/")], None);
        assert!(refused.contains("address not allowed"), "{refused}");
    }
}

#[test]
fn an_unreachable_kubelet_is_named_in_the_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    // Privileged, so that nobody gets it by chance: a port that was free once may have a listener meanwhile.
    let port = 1;
    with_node(&g, port);
    let why = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    let logs = g.kubectl_fails(&["logs", "p"], None);
    let url = format!("https://127.0.0.1:{port}/containerLogs/default/p/main");
    assert!(logs.contains(&format!("Get {url:?}: {why}")), "{logs}");
    let exec = g.kubectl_fails(&["exec", "p", "--", "true"], None);
    let url = format!("https://127.0.0.1:{port}/exec/default/p/main?command=true&error=1&output=1");
    let why = format!("Internal error occurred: error sending request: Post {url:?}: {why}");
    assert!(exec.contains(&why), "{exec}");
}
