//! The Service `default/kubernetes`, by which workloads reach the server, and its Endpoints and EndpointSlice
//! (upstream's `pkg/controlplane/controller/kubernetesservice`).

use super::super::ControlPlane;
use super::{MANAGER, change, create_if_missing, find};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use std::net::IpAddr;

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";

/// The address published as endpoint of `default/kubernetes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertise {
    /// `--advertise-address`.
    pub address: IpAddr,
    /// The port of the server's TLS listener: the `targetPort` of the Service and the port of its endpoints.
    pub port: u16,
}

pub(super) async fn ensure(plane: &ControlPlane, advertise: &Advertise) -> Result<()> {
    // Validation rejects loopback endpoints, which would not be reachable from pods anyway.
    if advertise.address.is_loopback() {
        tracing::debug!(address = %advertise.address, "a loopback address is not published as endpoints");
        return service(plane, advertise).await;
    }
    // Together, to share commits of the store.
    let (service, old, new) = tokio::join!(
        biased;
        service(plane, advertise),
        endpoints(plane, advertise),
        endpoint_slice(plane, advertise),
    );
    service.and(old).and(new)
}

async fn service(plane: &ControlPlane, advertise: &Advertise) -> Result<()> {
    let store = plane.store("", "services");
    let ports = crate::json!([
        {"name": "https", "port": 443, "protocol": "TCP", "targetPort": (i64::from(advertise.port))}
    ]);
    let Some(live) = find(store, NAMESPACE, NAME).await? else {
        // Requested explicitly: workloads expect this Service at the first address of the range.
        let ip = plane.service_address().to_string();
        let mut object = crate::json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"clusterIP": ip, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP"},
        });
        object.set(&["spec", "ports"], ports);
        return create_if_missing(store, object, MANAGER).await;
    };
    // Only the ports can go stale: the address of a Service is immutable.
    if live.at(&["spec", "ports"]) == &ports {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| v.set(&["spec", "ports"], ports.clone())).await
}

async fn endpoints(plane: &ControlPlane, advertise: &Advertise) -> Result<()> {
    let store = plane.store("", "endpoints");
    let subsets = crate::json!([{
        "addresses": [{"ip": (advertise.address.to_string())}],
        "ports": [{"name": "https", "port": (i64::from(advertise.port)), "protocol": "TCP"}],
    }]);
    // Keeps the mirroring controller from creating a second EndpointSlice.
    let labels = crate::json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let Some(live) = find(store, NAMESPACE, NAME).await? else {
        let mut object = crate::json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": NAME, "namespace": NAMESPACE},
        });
        object.set(&["metadata", "labels"], labels);
        object.set(&["subsets"], subsets);
        return create_if_missing(store, object, MANAGER).await;
    };
    if live.get("subsets") == &subsets {
        return Ok(());
    }
    change(store, &live, MANAGER, |v| v.set(&["subsets"], subsets.clone())).await
}

async fn endpoint_slice(plane: &ControlPlane, advertise: &Advertise) -> Result<()> {
    let store = plane.store("discovery.k8s.io", "endpointslices");
    let kind = if advertise.address.is_ipv4() { "IPv4" } else { "IPv6" };
    let endpoints = crate::json!([{"addresses": [(advertise.address.to_string())], "conditions": {"ready": true}}]);
    let ports = crate::json!([{"name": "https", "port": (i64::from(advertise.port)), "protocol": "TCP"}]);
    let write = |v: &mut Value| {
        v.set(&["endpoints"], endpoints.clone());
        v.set(&["ports"], ports.clone());
    };
    let Some(live) = find(store, NAMESPACE, NAME).await? else {
        let mut object = crate::json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
        });
        write(&mut object);
        return create_if_missing(store, object, MANAGER).await;
    };
    if live.get("endpoints") == &endpoints && live.get("ports") == &ports {
        return Ok(());
    }
    change(store, &live, MANAGER, write).await
}
