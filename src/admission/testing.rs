//! Test support: an immutable in-memory cluster, and requests to send to plugins.

use super::{Admission, Attributes, Cluster, ObjectLookup, Operation, ServedKind, Versions, Wanted};
use crate::api::apply_schema::ApplyType;
use crate::api::{by_gvk, decode};
use crate::apimachinery::apply::{self, OverlayError};
use crate::apimachinery::gvk::{GroupVersion, GroupVersionKind, GroupVersionResource};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::authz::{self, Authorizer, Verdict};
use crate::request::UserInfo;
use crate::storage::{
    Budget, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch,
    WatchOptions,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An authorizer that allows the requests for which the function returns true.
pub(crate) struct AllowIf<F>(pub F);

#[async_trait]
impl<F: Fn(&authz::Attributes<'_>) -> bool + Send + Sync + 'static> Authorizer for AllowIf<F> {
    async fn authorize(&self, asked: &authz::Attributes<'_>) -> Verdict {
        match (self.0)(asked) {
            true => Verdict::allow(""),
            false => Verdict::no_opinion("no rule"),
        }
    }
}

/// The objects of one resource; writes fail.
struct Still(BTreeMap<String, Arc<Entry>>);

fn refused() -> Error {
    Error::Failed("this store stands still".to_owned())
}

#[async_trait]
impl Storage for Still {
    async fn get(&self, key: &str, _: MinRevision) -> std::result::Result<Option<Arc<Entry>>, Error> {
        Ok(self.0.get(key).cloned())
    }

    async fn list(&self, options: ListOptions) -> std::result::Result<Listing, Error> {
        let all = self.0.values();
        let below = all.filter(|e| e.key.starts_with(&options.prefix) && options.predicate.matches(e));
        Ok(Listing {
            entries: below.cloned().collect(),
            revision: Revision(1),
            next: None,
            remaining: None,
        })
    }

    async fn watch(&self, _: WatchOptions) -> std::result::Result<Box<dyn Watch>, Error> {
        Err(refused())
    }

    async fn put(&self, _: &str, _: Precondition, _: Draft, _: Option<u64>) -> std::result::Result<Arc<Entry>, Error> {
        Err(refused())
    }

    async fn delete(&self, _: &str, _: Revision) -> std::result::Result<Arc<Entry>, Error> {
        Err(refused())
    }

    fn revision(&self) -> Revision {
        Revision(1)
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

/// Storage by group and plural.
pub(crate) type Storages = HashMap<(String, String), Arc<dyn Storage>>;

struct Stored(Storages);

/// Events have two versions, as in a real cluster; no other resource has. Conversion changes only
/// `apiVersion`.
#[async_trait]
impl Versions for Stored {
    fn equivalents(&self, resource: &GroupVersionResource, subresource: &str) -> Vec<ServedKind> {
        let events = ["", "events.k8s.io"].map(|group| ServedKind {
            resource: GroupVersionResource::new(group, "v1", "events"),
            kind: GroupVersionKind::new(group, "v1", "Event"),
        });
        match subresource.is_empty() && events.iter().any(|e| e.resource == *resource) {
            true => events.into_iter().filter(|e| e.resource != *resource).collect(),
            false => Vec::new(),
        }
    }

    async fn convert(&self, mut object: Value, _: &GroupVersionResource, to: &GroupVersionResource) -> Result<Value> {
        let api_version = GroupVersion::new(&to.group, &to.version).to_string();
        object.set(&["apiVersion"], api_version);
        Ok(object)
    }

    async fn objects(&self, of: &GroupVersionResource, namespace: &str, wanted: Wanted<'_>) -> Result<Vec<Value>> {
        let storage = self.storage(&of.group, &of.resource);
        let storage = storage.ok_or_else(|| Status::internal("this resource is not served"))?;
        let found = ObjectLookup::objects_in(&storage, namespace, wanted).await;
        found.map_err(Status::internal)
    }

    async fn complete(&self, kind: &ServedKind, _: &str, object: &mut Value) -> Result<Vec<String>> {
        let of = &kind.kind;
        let Some(def) = by_gvk(&of.group, &of.version, &of.kind) else {
            return Ok(Vec::new());
        };
        // Tests of webhooks let them add any field.
        decode::normalize(def, &mut object.clone()).map_err(|e| Status::bad_request(e.0))
    }

    async fn overlay(
        &self,
        kind: &ServedKind,
        _: &str,
        object: &Value,
        config: &Value,
    ) -> Result<std::result::Result<Value, OverlayError>> {
        let of = &kind.kind;
        let def = by_gvk(&of.group, &of.version, &of.kind).ok_or_else(|| Status::internal("unknown kind"))?;
        Ok(apply::overlay(ApplyType::Root(def), object, config))
    }
}

#[async_trait]
impl Cluster for Stored {
    fn storage(&self, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
        self.0.get(&(group.to_owned(), resource.to_owned())).cloned()
    }

    fn resource_of(&self, _group: &str, _kind: &str) -> Option<(String, bool)> {
        None
    }

    async fn create_namespace(&self, _name: &str) -> Result<()> {
        Err(Status::internal("this cluster is read-only"))
    }
}

/// A cluster with these objects, given by group and plural. Objects need a name and, if namespaced, a
/// namespace.
pub(crate) fn cluster(resources: &[(&str, &str, Vec<Value>)]) -> ObjectLookup {
    let mut storages = Storages::new();
    for (group, plural, objects) in resources {
        let entry = |o: &Value| {
            let key = match o.namespace() {
                "" => o.name().to_owned(),
                namespace => format!("{namespace}/{}", o.name()),
            };
            // The only selectable field that a plugin reads.
            let phase = ("status.phase".into(), o.str_at(&["status", "phase"]).into());
            let entry = Draft::new(o, vec![phase]).into_entry(&key, Revision(1));
            (key, Arc::new(entry))
        };
        let held = Still(objects.iter().map(entry).collect());
        storages.insert(((*group).to_owned(), (*plural).to_owned()), Arc::new(held));
    }
    stored(storages)
}

/// A cluster of these storages.
pub(crate) fn stored(storages: Storages) -> ObjectLookup {
    ObjectLookup::new(Arc::new(Stored(storages)))
}

/// A request for `group/v1/plural` in namespace `ns` by user `admin`. A slash in `plural` separates a
/// subresource.
pub(crate) fn request(operation: Operation, group: &str, plural: &str, name: &str) -> Attributes {
    let (plural, sub) = plural.split_once('/').unwrap_or((plural, ""));
    Attributes {
        subresource: sub.to_owned(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        user: Arc::new(UserInfo::system("admin", &["admins"])),
        ..Attributes::hypothetical(operation, group, "", plural)
    }
}

/// Like [`request`], for an update of `old`.
pub(crate) fn update(group: &str, plural: &str, old: Value) -> Attributes {
    let name = old.name().to_owned();
    Attributes {
        old_object: Some(Arc::new(old)),
        ..request(Operation::Update, group, plural, &name)
    }
}

/// A pod `p` in namespace `ns` with this spec.
pub(crate) fn pod(spec: Value) -> Value {
    let mut pod = crate::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
    });
    pod.set(&["spec"], spec);
    pod
}

/// Runs both phases of a plugin as the chain does, if it handles the request. Returns the resulting object.
///
/// # Errors
/// The message of the rejection.
pub(crate) async fn ask(
    plugin: &impl Admission,
    request: &Attributes,
    object: &Value,
) -> std::result::Result<Value, String> {
    let mut object = object.clone();
    let outcome: Result<()> = async {
        if plugin.handles(request) {
            plugin.mutate(request, &mut object).await?;
            plugin.validate(request, &object).await?;
        }
        Ok(())
    }
    .await;
    outcome.map(|()| object).map_err(|s| s.message)
}
