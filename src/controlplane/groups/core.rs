//! core/v1.

mod workloads;

use crate::apimachinery::gvk::GroupVersionKind;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::controlplane::columns::{core as columns, pods};
use crate::controlplane::fields::text;
use crate::controlplane::strategies::{data, endpoints, events::CoreEvent, namespace, node, pod, service::Service};
use crate::controlplane::subresources::binding::RootBinding;
use crate::controlplane::table::Group;
use crate::registry::resource::{Resource, SubresourceHandler, Verbs};
use crate::storage::Storage;
use std::sync::Arc;

/// The group.
pub const V1: Group = Group {
    group: "",
    version: "v1",
};

/// What core rows need that is no constant.
pub struct Parts {
    /// Behaviour of Services.
    pub service: Arc<Service>,
    /// `namespaces/finalize`
    pub finalize: Arc<dyn SubresourceHandler>,
    /// `pods/binding`
    pub binding: Arc<dyn SubresourceHandler>,
    /// `pods/eviction`
    pub eviction: Arc<dyn SubresourceHandler>,
    /// `replicationcontrollers/scale`
    pub scale: Arc<dyn SubresourceHandler>,
    /// `--event-ttl` in seconds.
    pub event_ttl_seconds: u64,
    /// Whose statuses are told.
    pub components: Arc<dyn Storage>,
}

fn flag(v: &Value, path: &[&str]) -> Str {
    Str::const_new(if v.at(path).as_bool() == Some(true) {
        "true"
    } else {
        "false"
    })
}

/// All rows.
pub fn rows(parts: Parts) -> Vec<Resource> {
    let mut all = workloads::rows(parts.scale.clone());
    all.extend(own_rows(parts));
    all.sort_by(|a, b| a.gvr.resource.cmp(&b.gvr.resource));
    all
}

fn own_rows(parts: Parts) -> Vec<Resource> {
    vec![
        V1.review("bindings", "Binding", Arc::new(RootBinding(parts.binding.clone())))
            .namespaced()
            .done(),
        V1.kind("componentstatuses", "ComponentStatus")
            .short(&["cs"])
            .computed(parts.components)
            .strategy(data::ComponentStatus)
            .columns(columns::component_statuses())
            .done(),
        V1.kind("configmaps", "ConfigMap")
            .namespaced()
            .short(&["cm"])
            .strategy(data::ConfigMap)
            .columns(columns::config_maps())
            .done(),
        V1.kind("endpoints", "Endpoints")
            .namespaced()
            .short(&["ep"])
            .stored_at("services/endpoints")
            .strategy(endpoints::Endpoints)
            .columns(columns::endpoints())
            .create_on_update()
            .done(),
        events(parts.event_ttl_seconds),
        V1.kind("namespaces", "Namespace")
            .short(&["ns"])
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
            .done(),
        V1.kind("nodes", "Node")
            .short(&["no"])
            .stored_at("minions")
            .strategy(node::Node)
            .columns(columns::nodes())
            .selectable(["spec.unschedulable"], |v| [flag(v, &["spec", "unschedulable"])])
            .status()
            .done(),
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
                parts.binding,
            )
            .part("ephemeralcontainers")
            .custom(
                "eviction",
                GroupVersionKind::new("policy", "v1", "Eviction"),
                Verbs::CREATE,
                parts.eviction,
            )
            .part("resize")
            .status()
            .done(),
        V1.kind("secrets", "Secret")
            .namespaced()
            .strategy(data::Secret)
            .columns(columns::secrets())
            .selectable(["type"], |v| [text(v, &["type"])])
            .done(),
        V1.kind("serviceaccounts", "ServiceAccount")
            .namespaced()
            .short(&["sa"])
            .strategy(data::ServiceAccount)
            .columns(columns::service_accounts())
            .returns_deleted()
            .done(),
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
            .status()
            .done(),
    ]
}

/// Events, which are served by another name as well.
pub fn events(ttl_seconds: u64) -> Resource {
    V1.kind("events", "Event")
        .namespaced()
        .short(&["ev"])
        .strategy(CoreEvent { ttl_seconds })
        .columns(columns::events())
        .create_on_update()
        .selectable(EVENT_FIELDS, event_fields)
        .done()
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
        // Accepted, but never filled in by upstream.
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
