//! Events about owners in other namespaces. A reference has no namespace: it means the dependent's, so such an
//! owner counts as absent, and the object is deleted. The event is the user's only hint.

use super::Collector;
use super::graph::Node;
use crate::controllers::events::Reference;
use crate::controllers::objects::{Followed, OwnerReference, Resource};
use std::sync::Arc;

/// Namespaces that are searched before the task yields.
const BATCH: usize = 256;

impl Collector {
    /// Records an event if the owner, which the namespace of the dependent does not have, is in another one.
    /// The owner is looked up by its name, because no index of all UIDs is kept.
    pub(super) async fn report_misplaced(
        &self,
        reference: &OwnerReference,
        node: &Node<Arc<Resource>>,
        owners: &Followed,
    ) {
        let own = node.key.split_once('/').map_or("", |(namespace, _)| namespace);
        let namespaces = self.namespaces.snapshot();
        for (n, namespace) in namespaces.keys().enumerate() {
            if n % BATCH == BATCH - 1 {
                tokio::task::yield_now().await;
            }
            // A lookup per namespace in the informer's map, without any read.
            let owner = owners.find(&format!("{namespace}/{}", reference.name));
            // Only the same UID proves a mistake; an object that merely has the same name is unrelated.
            if **namespace != *own && owner.is_some_and(|owner| owner.uid == reference.uid) {
                return self.warn(reference, node, own).await;
            }
        }
    }

    async fn warn(&self, reference: &OwnerReference, node: &Node<Arc<Resource>>, namespace: &str) {
        let resource = &node.resource;
        let api_version = resource.group_version();
        let dependent = Reference::new(&api_version, &resource.kind, &node.key, &node.object.uid);
        let message = message(reference, namespace);
        self.events.warn(&dependent, "OwnerRefInvalidNamespace", &message).await;
    }
}

fn message(reference: &OwnerReference, namespace: &str) -> String {
    let OwnerReference {
        api_version,
        kind,
        name,
        uid,
        ..
    } = reference;
    format!(
        "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in namespace \
         \"{namespace}\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_worded_as_upstream() {
        let reference = OwnerReference {
            uid: "poduid2".into(),
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: "podname2".into(),
            controller: None,
            blocks: None,
        };
        assert_eq!(
            message(&reference, "ns1"),
            r#"ownerRef [v1/Pod, namespace: ns1, name: podname2, uid: poduid2] does not exist in namespace "ns1""#
        );
        assert!(
            message(&reference, "").ends_with(r#"does not exist in namespace """#),
            "of a cluster-scoped object"
        );
    }
}
