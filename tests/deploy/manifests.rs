//! The kustomize base and its overlay.

use crate::support::Gateway;
use crate::{assert_flags_exist, deploy, read};

#[test]
fn the_manifests_pass_strict_server_side_validation() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    for (overlay, workload) in [("base", "statefulset/torana"), ("overlays/etcd", "deployment/torana")] {
        let path = deploy("kubernetes").join(overlay);
        let path = path.to_str().expect("UTF-8");
        let apply = ["apply", "--server-side", "--validate=strict", "-k", path];
        let applied = g.kubectl(&apply);
        assert!(
            applied.contains("networkpolicy.networking.k8s.io/torana serverside-applied"),
            "{applied}"
        );
        let image = "jsonpath={.spec.template.spec.containers[0].image}";
        let image = g.kubectl(&["get", "-n", "torana", workload, "-o", image]);
        assert_eq!(image, concat!("torana:", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn every_flag_in_the_manifests_exists() {
    for file in ["kubernetes/base/gateway.yaml", "kubernetes/overlays/etcd/gateways.yaml"] {
        assert_flags_exist(file, &read(file));
    }
}
