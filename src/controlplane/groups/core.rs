//! The core group, v1. Start at [`rows`]; workload, volume and quota kinds are in [`workloads`].

mod workloads;

use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::controlplane::columns::{core as columns, pods};
use crate::controlplane::fields::text;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::{data, endpoints, events::CoreEvent, namespace, node, pod, service::Service};
use crate::registry::resource::{Connect, CreateHandler, Resource, SubresourceHandler, Verbs};
use crate::storage::Storage;
use std::sync::Arc;

pub(crate) const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "",
    version: "v1",
};

/// Dependencies of the core resources.
pub(crate) struct Parts {
    /// The strategy of `services`.
    pub service: Arc<Service>,
    /// `namespaces/finalize`
    pub finalize: Arc<dyn SubresourceHandler>,
    /// `pods/binding`
    pub binding: Arc<dyn SubresourceHandler>,
    /// `bindings`
    pub bindings: Arc<dyn CreateHandler>,
    /// `serviceaccounts/token`; `None` if the server does not issue tokens.
    pub token: Option<Arc<dyn SubresourceHandler>>,
    /// `pods/eviction`
    pub eviction: Arc<dyn SubresourceHandler>,
    /// Connection subresources of pods, services and nodes.
    pub connections: Connections,
    /// `replicationcontrollers/scale`
    pub scale: Arc<dyn SubresourceHandler>,
    /// `--event-ttl` in seconds.
    pub event_ttl_seconds: u64,
    /// The storage of `componentstatuses`.
    pub components: Arc<dyn Storage>,
}

/// Handlers of the connection subresources.
pub(crate) struct Connections {
    pub pods: PodConnections,
    /// `services/proxy`
    pub services_proxy: Arc<dyn Connect>,
    /// `nodes/proxy`
    pub nodes_proxy: Arc<dyn Connect>,
}

/// Handlers of the connection subresources of pods, each of its name.
pub(crate) struct PodConnections {
    pub log: Arc<dyn Connect>,
    pub exec: Arc<dyn Connect>,
    pub attach: Arc<dyn Connect>,
    pub portforward: Arc<dyn Connect>,
    pub proxy: Arc<dyn Connect>,
}

const STREAM: Verbs = Verbs::CREATE.with(Verbs::GET);
const PROXY: Verbs = STREAM.with(Verbs::UPDATE).with(Verbs::PATCH).with(Verbs::DELETE);

fn core(kind: &'static str) -> GroupVersionKind {
    GroupVersionKind::new("", "v1", kind)
}

/// A boolean as a selectable field value.
fn flag(v: &Value, path: &[&str]) -> Str {
    Str::const_new(if v.at(path).as_bool() == Some(true) {
        "true"
    } else {
        "false"
    })
}

/// The resources of the group.
pub(crate) fn rows(parts: Parts) -> Vec<Resource> {
    let mut all = workloads::rows(parts.scale.clone());
    all.extend(own_rows(parts));
    // Discovery lists the resources of a group by name.
    all.sort_by(|a, b| a.gvr.resource.cmp(&b.gvr.resource));
    all
}

fn own_rows(parts: Parts) -> Vec<Resource> {
    let connections = parts.connections;
    vec![
        V1.kind("componentstatuses", "ComponentStatus")
            .short(&["cs"])
            .computed(parts.components)
            .strategy(data::ComponentStatus)
            .columns(columns::component_statuses())
            .build(),
        V1.review("bindings", "Binding", parts.bindings).namespaced().build(),
        V1.kind("configmaps", "ConfigMap")
            .namespaced()
            .short(&["cm"])
            .strategy(data::ConfigMap)
            .columns(columns::config_maps())
            .build(),
        V1.kind("endpoints", "Endpoints")
            .namespaced()
            .short(&["ep"])
            // Directories keep the names of the first releases: data of an existing cluster is found where it
            // is.
            .stored_at("services/endpoints")
            .strategy(endpoints::Endpoints)
            .columns(columns::endpoints())
            .create_on_update()
            .build(),
        events(parts.event_ttl_seconds),
        V1.kind("namespaces", "Namespace")
            .short(&["ns"])
            // Upstream's storage of namespaces does not implement it.
            .without(Verbs::DELETE_COLLECTION)
            .strategy(namespace::Namespace)
            .columns(columns::namespaces())
            .returns_deleted()
            .selectable(["status.phase"], |v| [text(v, &["status", "phase"])])
            .custom(
                "finalize",
                GroupVersionKind::new("", "v1", "Namespace"),
                Verbs::UPDATE,
                parts.finalize,
            )
            .status()
            .build(),
        V1.kind("nodes", "Node")
            .short(&["no"])
            .stored_at("minions")
            .strategy(node::Node)
            .columns(columns::nodes())
            .selectable(["spec.unschedulable"], |v| [flag(v, &["spec", "unschedulable"])])
            .connect("proxy", core("NodeProxyOptions"), PROXY, connections.nodes_proxy)
            .status()
            .build(),
        pod_row(parts.binding, parts.eviction, connections.pods),
        V1.kind("secrets", "Secret")
            .namespaced()
            .strategy(data::Secret)
            .columns(columns::secrets())
            .selectable(["type"], |v| [text(v, &["type"])])
            .build(),
        V1.kind("serviceaccounts", "ServiceAccount")
            .namespaced()
            .short(&["sa"])
            .strategy(data::ServiceAccount)
            .columns(columns::service_accounts())
            .returns_deleted()
            .custom_if_some(
                parts.token,
                "token",
                GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest"),
                Verbs::CREATE,
            )
            .build(),
        V1.kind("services", "Service")
            .namespaced()
            .short(&["svc"])
            .category("all")
            .stored_at("services/specs")
            .shared_strategy(parts.service)
            .columns(columns::services())
            .returns_deleted()
            .create_on_update()
            .selectable(["spec.clusterIP", "spec.type"], |v| {
                [text(v, &["spec", "clusterIP"]), text(v, &["spec", "type"])]
            })
            .connect("proxy", core("ServiceProxyOptions"), PROXY, connections.services_proxy)
            .status()
            .build(),
    ]
}

fn pod_row(
    binding: Arc<dyn SubresourceHandler>,
    eviction: Arc<dyn SubresourceHandler>,
    connections: PodConnections,
) -> Resource {
    V1.kind("pods", "Pod")
        .namespaced()
        .short(&["po"])
        .category("all")
        .strategy(pod::Pod)
        .columns(pods::pods())
        .returns_deleted()
        .selectable(POD_FIELDS, pod_fields)
        .custom(
            "binding",
            GroupVersionKind::new("", "v1", "Binding"),
            Verbs::CREATE,
            binding,
        )
        .connect("attach", core("PodAttachOptions"), STREAM, connections.attach)
        .connect("exec", core("PodExecOptions"), STREAM, connections.exec)
        // Discovery names the kind that upstream's `LogREST.New` returns, although a log is text.
        .connect("log", core("Pod"), Verbs::GET, connections.log)
        .connect(
            "portforward",
            core("PodPortForwardOptions"),
            STREAM,
            connections.portforward,
        )
        .connect("proxy", core("PodProxyOptions"), PROXY, connections.proxy)
        .status_like("ephemeralcontainers")
        .without_table()
        .custom(
            "eviction",
            GroupVersionKind::new("policy", "v1", "Eviction"),
            Verbs::CREATE,
            eviction,
        )
        .status_like("resize")
        .without_table()
        .status()
        .build()
}

/// The `events` resource, which events.k8s.io/v1 serves as well.
pub(crate) fn events(ttl_seconds: u64) -> Resource {
    V1.kind("events", "Event")
        .namespaced()
        .short(&["ev"])
        .strategy(CoreEvent { ttl_seconds })
        .columns(columns::events())
        .create_on_update()
        .selectable(EVENT_FIELDS, event_fields)
        .build()
}

const POD_FIELDS: [&str; 10] = [
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
    // The name that old clients use for `spec.nodeName` (`pkg/apis/core/v1/conversion.go`).
    "spec.host",
    "status.podIPs",
];

fn pod_fields(v: &Value) -> [Str; 10] {
    [
        text(v, &["spec", "nodeName"]),
        text(v, &["spec", "restartPolicy"]),
        text(v, &["spec", "schedulerName"]),
        text(v, &["spec", "serviceAccountName"]),
        flag(v, &["spec", "hostNetwork"]),
        text(v, &["status", "phase"]),
        text(v, &["status", "podIP"]),
        text(v, &["status", "nominatedNodeName"]),
        text(v, &["spec", "nodeName"]),
        // Upstream accepts a `status.podIPs` selector but never populates the field.
        Str::default(),
    ]
}

const EVENT_FIELDS: [&str; 11] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

fn event_fields(v: &Value) -> [Str; 11] {
    let of = |key: &str| text(v, &["involvedObject", key]);
    // Events written through events.k8s.io have no source component; upstream falls back likewise.
    let source = match v.str_at(&["source", "component"]) {
        "" => v.str_at(&["reportingComponent"]),
        c => c,
    };
    [
        Str::new(v.get("involvedObject").kind()),
        of("namespace"),
        of("name"),
        of("uid"),
        of("apiVersion"),
        of("resourceVersion"),
        of("fieldPath"),
        text(v, &["reason"]),
        text(v, &["reportingComponent"]),
        Str::new(source),
        text(v, &["type"]),
    ]
}
