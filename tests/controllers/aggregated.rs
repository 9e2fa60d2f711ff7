//! Namespaces with objects of an aggregated API server.

use super::support::wait_for;
use super::{exists, gateway};

const GADGET: &str =
    "apiVersion: gadgets.example.com/v1\nkind: Gadget\nmetadata: {name: one, namespace: far}\nspec: {size: 3}\n";
const ALL: &str = "/apis/gadgets.example.com/v1/gadgets";

#[test]
fn a_namespace_remains_until_its_backend_has_deleted_its_objects() {
    let (_dir, g) = gateway();
    let mut backend = g.with_example();
    g.kubectl(&["create", "namespace", "far"]);
    g.kubectl_in(&["create", "-f", "-"], Some(GADGET));
    assert!(g.kubectl(&["get", "--raw", ALL]).contains("\"one\""));

    // A backend that does not answer may hold objects.
    backend.child.kill().expect("the child is ours");
    backend.child.wait().expect("the child is ours");
    let available = "jsonpath={.status.conditions[?(@.type=='Available')].status}";
    wait_for("the backend is known to be away", || {
        g.kubectl(&["get", "apiservice", "v1.gadgets.example.com", "-o", available]) == "False"
    });
    g.kubectl(&["delete", "namespace", "far", "--wait=false"]);
    let condition = "{.status.conditions[?(@.type=='NamespaceDeletionDiscoveryFailure')]";
    let path = format!("jsonpath={condition}.reason}} {condition}.message}}");
    let expected = "DiscoveryFailed Discovery failed for some groups, 1 failing: unable to retrieve the complete list of \
                    server APIs: gadgets.example.com/v1: stale GroupVersion discovery: gadgets.example.com/v1";
    wait_for("it is reported", || {
        g.kubectl(&["get", "namespace", "far", "-o", &path]) == expected
    });
    // The rest is deleted all the same.
    wait_for("the account is gone", || !exists(&g, &["serviceaccounts", "-n", "far"]));
    assert!(exists(&g, &["namespace", "far"]));

    let _backend = g.with_example();
    // The loop backs off for up to a minute while the backend is away.
    g.kubectl(&["wait", "--for=delete", "namespace/far", "--timeout=120s"]);
    assert!(
        !g.kubectl(&["get", "--raw", ALL]).contains("\"one\""),
        "the backend's objects went first"
    );
}
