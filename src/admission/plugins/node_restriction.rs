//! NodeRestriction: limits kubelets to their own Node, lease, CSINode and slices, and to the pods on their
//! node. As upstream's `plugin/pkg/admission/noderestriction`. A kubelet is a user `system:node:<name>` in
//! the group `system:nodes`.

mod labels;
mod pods;
mod tokens;

use super::certificates::subject;
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::authz::Authorizer;
use async_trait::async_trait;
use std::sync::Arc;

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";

/// The NodeRestriction plugin. Complements the Node authorizer, which does not see the object.
pub(crate) struct NodeRestriction {
    cluster: ObjectLookup,
    authorizer: Arc<dyn Authorizer>,
}

impl NodeRestriction {
    /// Reads pods and nodes from `cluster`; `authorizer` may permit additional token audiences.
    pub(crate) fn new(cluster: ObjectLookup, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { cluster, authorizer }
    }
}

/// A write by a node.
struct NodeRequest<'a> {
    node: &'a str,
    attributes: &'a Attributes,
    object: &'a Value,
}

impl NodeRequest<'_> {
    fn no(&self, why: impl AsRef<str>) -> Result<()> {
        Err(forbidden(self.attributes, self.object, why))
    }

    fn old(&self) -> &Value {
        self.attributes.old_object.as_deref().unwrap_or(&Value::Null)
    }

    /// The name of the object. On create it is only in the object, not in the request.
    fn name(&self) -> &str {
        match self.attributes.operation {
            Operation::Create if !self.object.name().is_empty() => self.object.name(),
            _ => &self.attributes.name,
        }
    }
}

/// A 404 like that of upstream's listers, which use the singular resource name.
fn absent(what: (&str, &str), name: &str) -> Status {
    Status::not_found(&GroupResource::new(what.0, what.1), name)
}

fn check_node(asked: &NodeRequest<'_>) -> Result<()> {
    let (me, new, old) = (asked.node, asked.object, asked.old());
    if asked.name() != me {
        let requested = asked.name();
        return asked.no(format!("node {me:?} is not allowed to modify node {requested:?}"));
    }
    // Dynamic kubelet configuration is gone, but the field is still stored.
    let source = |node: &Value| node.at(&["spec", "configSource"]).clone();
    match asked.attributes.operation {
        Operation::Create => {
            if !source(new).is_null() {
                // Upstream's message says "pods" here.
                return asked.no(format!(
                    "node {me:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let refused = labels::refused(new, &Value::Null);
            if !refused.is_empty() {
                let refused = refused.join(", ");
                return asked.no(format!(
                    "node {me:?} is not allowed to set the following labels: {refused}"
                ));
            }
        }
        Operation::Update => {
            if !source(new).is_null() && source(new) != source(old) {
                return asked.no(format!(
                    "node {me:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            // Otherwise a compromised node could attract Pods that are kept away from it. `items` makes null and an
            // empty list equal.
            if new.at(&["spec", "taints"]).items() != old.at(&["spec", "taints"]).items() {
                return asked.no(format!("node {me:?} is not allowed to modify taints"));
            }
            let refused = labels::refused(new, old);
            if !refused.is_empty() {
                return asked.no(format!("is not allowed to modify labels: {}", refused.join(", ")));
            }
            // With an owner that does not exist, garbage collection would delete the Node, which its node may not
            // do itself (CVE-2025-5187).
            let owners = ["metadata", "ownerReferences"];
            if new.at(&owners).items() != old.at(&owners).items() {
                return asked.no(format!("node {me:?} is not allowed to modify ownerReferences"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_claim(asked: &NodeRequest<'_>) -> Result<()> {
    if asked.attributes.subresource != "status" {
        return asked.no("may only update PVC status");
    }
    if asked.attributes.operation != Operation::Update {
        let operation = asked.attributes.operation.as_str();
        return asked.no(format!("unexpected operation {operation:?}"));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        // Set by the server or by the patch itself.
        claim.unset_meta("resourceVersion");
        claim.unset_meta("managedFields");
        for field in [
            "capacity",
            "conditions",
            "allocatedResourceStatuses",
            "allocatedResources",
        ] {
            claim.unset(&["status", field]);
        }
        // A status that had only permitted fields must equal an absent one.
        if claim.get("status").is_empty_value() {
            claim.unset(&["status"]);
        }
        claim
    };
    if rest(asked.object) != rest(asked.old()) {
        return asked.no(format!(
            "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
            asked.node
        ));
    }
    Ok(())
}

fn check_lease(asked: &NodeRequest<'_>) -> Result<()> {
    if asked.attributes.namespace != LEASES {
        return asked.no(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    match asked.name() == asked.node {
        true => Ok(()),
        false => asked.no("can only access node lease with the same name as the requesting node"),
    }
}

fn check_slice(asked: &NodeRequest<'_>) -> Result<()> {
    let (slice, verb) = match asked.attributes.operation {
        Operation::Create => (asked.object, "create"),
        Operation::Delete => (asked.old(), "delete"),
        // An update cannot change `spec.nodeName`.
        _ => return Ok(()),
    };
    match slice.str_at(&["spec", "nodeName"]) == asked.node {
        true => Ok(()),
        false => asked.no(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )),
    }
}

fn check_csr(asked: &NodeRequest<'_>) -> Result<()> {
    let new = asked.attributes.operation == Operation::Create && asked.attributes.subresource.is_empty();
    let signer = asked.object.str_at(&["spec", "signerName"]);
    let ours = [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
    ];
    // Other signers have approvers that decide about the subject.
    if !new || !ours.contains(&signer) {
        return Ok(());
    }
    let wanted = format!("{PREFIX}{}", asked.node);
    match subject(asked.object.at(&["spec", "request"])) {
        // All common names must match, because parsers disagree on which of several counts.
        Ok(name) if !name.common_names().is_empty() && name.common_names().iter().all(|n| *n == wanted) => Ok(()),
        Ok(_) => asked.no(format!("can only create a node CSR with CN={wanted}")),
        Err(why) => asked.no(format!("unable to parse csr: {why}")),
    }
}

#[async_trait]
impl Admission for NodeRestriction {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation != Operation::Connect
            && attributes.user.name.starts_with(PREFIX)
            && attributes.user.in_group(GROUP)
    }

    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let asked = NodeRequest {
            node: attributes.user.name.strip_prefix(PREFIX).unwrap_or_default(),
            attributes,
            object,
        };
        // A member of the group without a node name must not pass as "any node".
        if asked.node.is_empty() {
            let user = &attributes.user.name;
            return asked.no(format!("could not determine node from user {user:?}"));
        }
        match (&*attributes.resource.group, &*attributes.resource.resource) {
            ("", "pods") => pods::check(&self.cluster, &asked).await,
            ("", "nodes") => check_node(&asked),
            ("", "persistentvolumeclaims") => check_claim(&asked),
            ("", "serviceaccounts") => tokens::check(&self.cluster, &*self.authorizer, &asked).await,
            ("coordination.k8s.io", "leases") => check_lease(&asked),
            ("storage.k8s.io", "csinodes") if asked.name() != asked.node => {
                asked.no("can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices") => check_slice(&asked),
            ("certificates.k8s.io", "certificatesigningrequests") => check_csr(&asked),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
