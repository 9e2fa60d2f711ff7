//! ServiceCIDRs.

use super::gateway;
use super::support::wait_for;

#[test]
fn a_service_cidr_is_kept_while_an_address_needs_it() {
    let (_dir, g) = gateway();
    let range = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: more}\nspec: {cidrs: [192.168.77.0/24]}\n";
    g.kubectl_in(&["create", "-f", "-"], Some(range));
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let state = |path: &str| g.kubectl(&["get", "servicecidr", "more", "-o", path]);
    wait_for("it is ready", || state(ready) == "True");
    assert_eq!(
        state("jsonpath={.metadata.finalizers[0]}"),
        "networking.k8s.io/service-cidr-finalizer"
    );
    let service = [
        "create",
        "service",
        "clusterip",
        "s",
        "--tcp=80",
        "--clusterip=192.168.77.5",
    ];
    wait_for("its addresses are given out", || g.kubectl_try(&service));
    g.kubectl(&["delete", "servicecidr", "more", "--wait=false"]);
    wait_for("it is in use", || state(ready) == "False");
    let message = state("jsonpath={.status.conditions[?(@.type=='Ready')].message}");
    assert_eq!(
        message,
        "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
    );
    g.kubectl(&["delete", "service", "s"]);
    g.kubectl(&["wait", "--for=delete", "servicecidr/more", "--timeout=60s"]);
}
