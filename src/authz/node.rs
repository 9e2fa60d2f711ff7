//! The Node authorizer (upstream's `plugin/pkg/auth/authorizer/node`): a kubelet may read the objects its
//! pods reference, as found in a [`Graph`]; its other permissions are fixed rules.
//!
//! Like the RBAC index, the graph follows storage: a decision waits until the graph includes every
//! acknowledged write that it may depend on.

mod graph;
mod refs;

pub(crate) use graph::{Graph, Sources};
pub(crate) use refs::for_each_secret;

use super::rbac::PolicyRule;
use super::{Attributes, Authorizer, Rules, Verdict};
use crate::apimachinery::field::quote;
use crate::apimachinery::selector::FieldSelector;
use crate::request::UserInfo;
use async_trait::async_trait;
use graph::View;
use refs::ObjectKind;
use std::sync::Arc;

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";
/// Bytes of a field selector that is looked at. Parsing takes some 100 ns per byte.
const MAX_SELECTOR: usize = 2 << 10;

pub(crate) struct Node {
    graph: Arc<Graph>,
    rules: Vec<PolicyRule>,
}

/// The node name of a caller in `system:nodes`; empty for the bare prefix `system:node:`. `None` for other
/// callers.
pub(crate) fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    user.in_group(GROUP).then_some(name)
}

fn no(reason: impl Into<String>) -> Verdict {
    Verdict::no_opinion(reason.into())
}

fn yes() -> Verdict {
    Verdict::allow("")
}

/// The namespace whose Pods a decision depends on; `None` if it may be any.
fn pods_in<'a>(attributes: &Attributes<'a>) -> Option<&'a str> {
    // Claims of any namespace need a PersistentVolume, and through it the Secret of its driver. All other
    // objects that a Pod references are in its own namespace.
    let anywhere = matches!(attributes.resource, "secrets" | "persistentvolumes");
    (!anywhere).then_some(attributes.namespace)
}

/// A request of a node, and the view of the graph that decides it.
struct NodeRequest<'a> {
    node: &'a str,
    view: &'a View,
    attributes: &'a Attributes<'a>,
}

impl Node {
    /// Decides with `graph`, and with `rules` (those of ClusterRole `system:node`) for permissions that all
    /// nodes share.
    pub(crate) fn new(graph: Arc<Graph>, rules: Vec<PolicyRule>) -> Self {
        Self { graph, rules }
    }

    fn fixed(&self, attributes: &Attributes<'_>) -> Verdict {
        if self.rules.iter().any(|r| r.allows(attributes)) {
            yes()
        } else {
            no("")
        }
    }
}

#[async_trait]
impl Authorizer for Node {
    /// Answers for callers that are not nodes; a node's request may have to wait for the graph.
    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        node_of(attributes.user).is_none().then(|| no(""))
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let Some(node) = node_of(attributes.user) else {
            return no("");
        };
        // A member of system:nodes without a node name is misconfigured: no opinion, but with a reason for
        // the administrator.
        if node.is_empty() {
            return no(format!("unknown node for user {}", quote(&attributes.user.name)));
        }
        // Before waiting for the graph: fixed rules such as those for discovery must work while it is behind.
        if !attributes.is_resource {
            return self.fixed(attributes);
        }
        // Read-your-writes matters most here: a kubelet fetches a pod's Secrets right after it sees the pod
        // bound to its node, and backs off after a 403.
        let view = match self.graph.fresh(pods_in(attributes)).await {
            Ok(view) => view,
            Err(behind) => {
                return Verdict {
                    error: Some(behind.to_string()),
                    ..no("")
                };
            }
        };
        let q = NodeRequest {
            node,
            view: &view,
            attributes,
        };
        match (attributes.api_group, attributes.resource) {
            ("", "secrets") => q.read(ObjectKind::Secret),
            ("", "configmaps") => q.read(ObjectKind::ConfigMap),
            // Kubelets update the status after expanding a volume's file system; the claim itself is
            // read-only to them.
            ("", "persistentvolumeclaims") if attributes.subresource == "status" => match attributes.verb {
                "update" | "patch" => q.related(ObjectKind::Claim),
                _ => no("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => q.get(ObjectKind::Claim),
            ("", "persistentvolumes") => q.get(ObjectKind::Volume),
            ("resource.k8s.io", "resourceclaims") => q.get(ObjectKind::ResourceClaim),
            ("storage.k8s.io", "volumeattachments") => q.get(ObjectKind::Attachment),
            ("", "serviceaccounts") => q.service_account(),
            ("coordination.k8s.io", "leases") => q.lease(),
            ("storage.k8s.io", "csinodes") => q.csi_node(),
            ("resource.k8s.io", "resourceslices") => q.slice(),
            ("", "nodes") => q.node(),
            ("", "pods") => q.pod(),
            _ => self.fixed(attributes),
        }
    }

    async fn rules_for(&self, user: &UserInfo, _: &str) -> Rules {
        match node_of(user) {
            Some(_) => Rules::unknown("node authorizer does not support user rule resolution"),
            None => Rules::default(),
        }
    }
}

impl NodeRequest<'_> {
    fn unrelated(&self) -> Verdict {
        no(format!(
            "no relationship found between node '{}' and this object",
            self.node
        ))
    }

    fn related(&self, kind: ObjectKind) -> Verdict {
        if self.attributes.name.is_empty() {
            return no("No Object name found");
        }
        self.in_graph(kind)
    }

    fn in_graph(&self, kind: ObjectKind) -> Verdict {
        if self
            .view
            .reaches(self.node, kind, self.attributes.namespace, self.attributes.name)
        {
            yes()
        } else {
            self.unrelated()
        }
    }

    fn read(&self, kind: ObjectKind) -> Verdict {
        if !matches!(self.attributes.verb, "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !self.attributes.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if self.attributes.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(kind)
    }

    fn get(&self, kind: ObjectKind) -> Verdict {
        if self.attributes.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !self.attributes.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(kind)
    }

    fn service_account(&self) -> Verdict {
        // Since v1.36, kubelets may read the service accounts of their pods, to select image pull
        // credentials.
        if self.attributes.verb == "get" && self.attributes.subresource.is_empty() {
            return self.related(ObjectKind::ServiceAccount);
        }
        if self.attributes.verb != "create" || self.attributes.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if self.attributes.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        // TokenRequest: the pod that a token is bound to is checked by the NodeRestriction plugin.
        self.in_graph(ObjectKind::ServiceAccount)
    }

    fn lease(&self) -> Verdict {
        if !matches!(self.attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a node lease");
        }
        if self.attributes.namespace != LEASES {
            return no("can only access leases in the \"kube-node-lease\" system namespace");
        }
        self.own("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Verdict {
        if !matches!(self.attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a CSINode");
        }
        if !self.attributes.subresource.is_empty() {
            return no("cannot authorize CSINode subresources");
        }
        self.own("can only access CSINode with the same name as the requesting node")
    }

    /// Allows access to the object named like the node. A create has no name yet; the NodeRestriction plugin
    /// checks it.
    fn own(&self, otherwise: &str) -> Verdict {
        if self.attributes.verb == "create" || self.attributes.name == self.node {
            yes()
        } else {
            no(otherwise)
        }
    }

    /// True if the field selector restricts the request to objects of this node.
    fn selects(&self, field: &str) -> bool {
        let text = self.attributes.field_selector;
        // Parsed on a reactor, and in a review as long as a body may be. A kubelet's selector has one short term.
        text.len() <= MAX_SELECTOR
            && FieldSelector::parse(text).is_ok_and(|s| {
                s.terms()
                    .iter()
                    .any(|t| t.equal && t.field == field && t.value == self.node)
            })
    }

    fn slice(&self) -> Verdict {
        if !self.attributes.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match self.attributes.verb {
            // Which node a new slice is for is checked by the NodeRestriction plugin, which sees the object.
            "create" => yes(),
            "get" | "update" | "patch" | "delete" => self.related(ObjectKind::Slice),
            "watch" | "list" | "deletecollection" if self.selects("spec.nodeName") => yes(),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn node(&self) -> Verdict {
        let me = self.node;
        match (self.attributes.subresource, self.attributes.verb) {
            // Writes to other nodes are refused by the NodeRestriction plugin: a create has no name here.
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => yes(),
            ("", "get" | "list" | "watch") => match self.attributes.name {
                "" => no(format!("node '{me}' cannot read all nodes, only its own Node object")),
                name if name == me => yes(),
                name => no(format!("node '{me}' cannot read '{name}', only its own Node object")),
            },
            _ => no(""),
        }
    }

    fn pod(&self) -> Verdict {
        match (self.attributes.subresource, self.attributes.verb) {
            ("", "get") => self.get(ObjectKind::Pod),
            ("", "list" | "watch") if self.selects("spec.nodeName") => yes(),
            // A list with a field selector for metadata.name counts as a request for that name.
            ("", "list" | "watch") if !self.attributes.name.is_empty() => self.related(ObjectKind::Pod),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // Mirror pods are created and deleted by kubelets. The NodeRestriction plugin limits all of these
            // to pods of the node itself.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => yes(),
            _ => no(""),
        }
    }
}

#[cfg(test)]
mod tests;
