//! Builder for resource definitions. The files in `controlplane/groups` define each resource as one call
//! chain on [`ResourceBuilder`] that starts at [`GroupVersionBuilder::kind`] and ends in
//! [`ResourceBuilder::build`]; anything not mentioned has the common default.

use super::metadata;
use super::schema::BuiltinSchema;
use super::versions::VersionPair;
use crate::api;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::gvk::{GroupVersionKind, GroupVersionResource};
use crate::apimachinery::value::{Str, Value};
use crate::endpoints::discovery::resources;
use crate::registry::converting::{Pair, ThroughHub};
use crate::registry::resource::{
    Backing, Columns, Connect, CreateHandler, Resource, Subresource, SubresourceBehaviour, SubresourceHandler, Verbs,
};
use crate::registry::selectable_fields::SelectableFields;
use crate::registry::strategy::{Plain, RestStrategy, Strategy};
use crate::storage::Storage;
use std::sync::Arc;

/// Prefix of all storage keys; upstream's default of `--etcd-prefix`.
pub(crate) const KEY_PREFIX: &str = "/registry";

/// A group version, the starting point of a definition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupVersionBuilder {
    /// The API group; empty for core.
    pub group: &'static str,
    pub version: &'static str,
}

/// A resource definition under construction.
pub(crate) struct ResourceBuilder(Resource);

impl GroupVersionBuilder {
    /// A cluster-scoped resource, stored under its plural, with all verbs and the [`Plain`] strategy.
    ///
    /// # Panics
    /// If the schema table lacks the kind. Definitions are constant, so any test that builds them detects it.
    pub(crate) fn kind(self, plural: &str, kind: &str) -> ResourceBuilder {
        let def = api::by_gvk(self.group, self.version, kind)
            .unwrap_or_else(|| unreachable!("a row names a kind the schema table does not have: {kind}"));
        ResourceBuilder(Resource {
            gvr: GroupVersionResource::new(self.group, self.version, plural),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            singular: kind.to_ascii_lowercase().into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: false,
            verbs: Verbs::ALL,
            backing: Backing::Stored {
                prefix: format!("{KEY_PREFIX}/{plural}/"),
            },
            schema: Arc::new(BuiltinSchema(def)),
            definition: def.name.into(),
            strategy: Arc::new(Plain),
            columns: None,
            selectable: None,
            deprecation: None,
            unstructured: false,
            compressed: false,
            returns_deleted: false,
            unconditional_update: true,
            meta_checks: metadata::checks(kind),
            create_on_update: false,
            storage_version_hash: storage_version_hash(self.group, self.version, kind),
            subresources: Vec::new(),
        })
    }

    /// A create-only resource that is evaluated by `answer` and never stored.
    pub(crate) fn review(
        self,
        plural: &'static str,
        kind: &'static str,
        answer: Arc<dyn CreateHandler>,
    ) -> ResourceBuilder {
        let mut row = self.kind(plural, kind);
        row.0.verbs = Verbs::CREATE;
        row.0.backing = Backing::CreateOnly(answer);
        // Nothing is stored, so discovery has no hash to publish.
        row.0.storage_version_hash = Str::default();
        row
    }
}

impl ResourceBuilder {
    /// The resource is namespaced.
    pub(crate) fn namespaced(mut self) -> Self {
        self.0.namespaced = true;
        self
    }

    pub(crate) fn strategy(mut self, strategy: impl Strategy) -> Self {
        self.0.strategy = Arc::new(strategy);
        self
    }

    /// As [`Self::strategy`], for a strategy that is used elsewhere too.
    pub(crate) fn shared_strategy(mut self, strategy: Arc<dyn RestStrategy>) -> Self {
        self.0.strategy = strategy;
        self
    }

    /// The storage keeps large objects compressed in memory.
    pub(crate) fn compressed(mut self) -> Self {
        self.0.compressed = true;
        self
    }

    /// Sets the short names.
    pub(crate) fn short(mut self, names: &[&str]) -> Self {
        self.0.short_names = names.iter().map(|n| Str::new(n)).collect();
        self
    }

    pub(crate) fn category(mut self, name: &str) -> Self {
        self.0.categories.push(name.into());
        self
    }

    pub(crate) fn without(mut self, verbs: Verbs) -> Self {
        self.0.verbs = self.0.verbs.without(verbs);
        self
    }

    /// Sets the directory below [`KEY_PREFIX`], if it is not the plural.
    pub(crate) fn stored_at(mut self, directory: &str) -> Self {
        self.0.backing = Backing::Stored {
            prefix: format!("{KEY_PREFIX}/{directory}/"),
        };
        self
    }

    /// Makes the resource read-only and not stored; `storage` computes it.
    pub(crate) fn computed(mut self, storage: Arc<dyn Storage>) -> Self {
        self.0.backing = Backing::Computed(storage);
        self.0.verbs = Verbs::GET.with(Verbs::LIST);
        self.0.storage_version_hash = Str::default();
        self
    }

    /// Sets the version upstream stores the kind in, if it is not the served one. Affects only discovery's
    /// `storageVersionHash`.
    pub(crate) fn hashed_as(mut self, version: &str) -> Self {
        self.0.storage_version_hash = storage_version_hash(&self.0.gvr.group, version, &self.0.kind);
        self
    }

    /// Makes this another version of `hub`. Objects are converted to the hub version for storage,
    /// preparation, validation and tables: `strategy` sees only hub objects. `default` sets this version's
    /// own defaults.
    pub(crate) fn converted_from(
        mut self,
        hub: &Resource,
        pair: &'static VersionPair,
        strategy: Arc<dyn RestStrategy>,
        default: fn(&mut Value),
    ) -> Self {
        let own = self.0;
        let conversion: Arc<dyn Pair> = Arc::new(pair);
        let columns = hub.columns.clone().map(|c| Columns {
            conditions: c.conditions,
            always_headed: c.always_headed,
            // The cells are written for hub objects: each row pays for a conversion, and both versions share
            // one set of columns.
            cells: Arc::new(move |v| (c.cells)(&pair.store(v.clone()))),
            columns: c.columns,
            // The conversion may read any field.
            reads: Mask::Whole,
        });
        // Only fields that both versions can select by.
        let selectable = hub.selectable.as_ref().map(|s| SelectableFields {
            names: s.names.iter().filter_map(|n| (pair.field)(n)).map(Str::new).collect(),
            extract: {
                let extract = s.extract.clone();
                Arc::new(move |v| {
                    let fields = extract(&pair.store(v.clone())).into_iter();
                    fields
                        .filter_map(|(k, v)| Some((Str::new((pair.field)(&k)?), v)))
                        .collect()
                })
            },
            unstored: None,
        });
        let (gvk, gvr) = (own.gvk(), own.gvr);
        let mut subresources = hub.subresources.clone();
        for sub in &mut subresources {
            // `status` has the parent's own kind, which is that of the served version; a Scale keeps its
            // kind.
            if sub.kind == hub.gvk() {
                sub.kind = gvk.clone();
            }
        }
        self.0 = Resource {
            gvr,
            schema: own.schema,
            definition: own.definition,
            meta_checks: own.meta_checks,
            strategy: Arc::new(ThroughHub::new(strategy, conversion.clone(), default)),
            backing: Backing::Converted {
                // A hub is stored, so it has a prefix.
                prefix: hub.prefix().unwrap_or_default().to_owned(),
                hub: hub.gvr.clone(),
                conversion,
            },
            columns,
            selectable,
            subresources,
            ..hub.clone()
        };
        self
    }

    /// Sets the columns of its table representation.
    pub(crate) fn columns(mut self, columns: Columns) -> Self {
        self.0.columns = Some(columns);
        self
    }

    /// Sets the selectable fields; `extract` returns one value per name, in the same order.
    pub(crate) fn selectable<const N: usize>(
        mut self,
        names: [&'static str; N],
        extract: impl Fn(&Value) -> [Str; N] + Send + Sync + 'static,
    ) -> Self {
        let keys: Arc<[Str]> = names.iter().map(|n| Str::const_new(n)).collect();
        self.0.selectable = Some(SelectableFields {
            names: keys.clone(),
            extract: Arc::new(move |v| keys.iter().cloned().zip(extract(v)).collect()),
            unstored: None,
        });
        self
    }

    /// A delete returns the deleted object instead of a Status.
    pub(crate) fn returns_deleted(mut self) -> Self {
        self.0.returns_deleted = true;
        self
    }

    /// An update must have a resourceVersion.
    pub(crate) fn conditional_update(mut self) -> Self {
        self.0.unconditional_update = false;
        self
    }

    /// A PUT creates a missing object.
    pub(crate) fn create_on_update(mut self) -> Self {
        self.0.create_on_update = true;
        self
    }

    /// Adds the `status` subresource.
    pub(crate) fn status(self) -> Self {
        self.status_like("status")
    }

    /// Adds a subresource that reads and updates a part of the object through the strategy, such as `status`
    /// or `resize`.
    pub(crate) fn status_like(self, name: &'static str) -> Self {
        let kind = self.0.gvk();
        self.subresource(name, kind, Verbs::GET_PATCH_UPDATE, SubresourceBehaviour::Status)
    }

    /// The subresource that was added last is not served as a table: upstream's storage of it does not
    /// implement `ConvertToTable`.
    pub(crate) fn without_table(mut self) -> Self {
        if let Some(last) = self.0.subresources.last_mut() {
            last.printable = false;
        }
        self
    }

    /// Adds a subresource with its own object and handler.
    pub(crate) fn custom(
        self,
        name: &'static str,
        kind: GroupVersionKind,
        verbs: Verbs,
        handler: Arc<dyn SubresourceHandler>,
    ) -> Self {
        self.subresource(name, kind, verbs, SubresourceBehaviour::Custom(handler))
    }

    /// As [`Self::custom`], if there is a handler.
    pub(crate) fn custom_if_some(
        self,
        handler: Option<Arc<dyn SubresourceHandler>>,
        name: &'static str,
        kind: GroupVersionKind,
        verbs: Verbs,
    ) -> Self {
        match handler {
            Some(handler) => self.custom(name, kind, verbs, handler),
            None => self,
        }
    }

    /// Adds a subresource that connects to a backend.
    pub(crate) fn connect(
        self,
        name: &'static str,
        kind: GroupVersionKind,
        verbs: Verbs,
        handler: Arc<dyn Connect>,
    ) -> Self {
        self.subresource(name, kind, verbs, SubresourceBehaviour::Connect(handler))
    }

    fn subresource(
        mut self,
        name: &'static str,
        kind: GroupVersionKind,
        verbs: Verbs,
        behaviour: SubresourceBehaviour,
    ) -> Self {
        self.0.subresources.push(Subresource {
            name: name.into(),
            kind,
            verbs,
            behaviour,
            printable: true,
        });
        self
    }

    pub(crate) fn build(self) -> Resource {
        self.0
    }
}

/// Discovery's `storageVersionHash`: the first eight bytes of the SHA-256 of `group/version/Kind`, in base64.
pub(crate) fn storage_version_hash(group: &str, version: &str, kind: &str) -> Str {
    resources::storage_version_hash(group, version, kind).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_version_hashes_match_upstream() {
        assert_eq!(
            storage_version_hash("apiregistration.k8s.io", "v1", "APIService"),
            "InPBPD7+PqM="
        );
        assert_eq!(
            storage_version_hash("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition"),
            "jfWCUB31mvA="
        );
    }

    #[test]
    fn unmentioned_properties_have_the_common_defaults() {
        let r = GroupVersionBuilder {
            group: "",
            version: "v1",
        }
        .kind("configmaps", "ConfigMap")
        .namespaced()
        .short(&["cm"])
        .build();
        assert_eq!(
            (r.singular.as_str(), r.definition.as_str()),
            ("configmap", "io.k8s.api.core.v1.ConfigMap")
        );
        assert!(matches!(&r.backing, Backing::Stored { prefix } if prefix == "/registry/configmaps/"));
        assert!(r.unconditional_update && !r.create_on_update && !r.returns_deleted);
        assert_eq!(r.verbs, Verbs::ALL);
    }
}
