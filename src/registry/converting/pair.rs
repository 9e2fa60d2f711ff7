//! Built-in kinds with two versions, one of which (the *hub*) is stored. A kind implements [`Pair`];
//! [`PairConversion`] makes the `Conversion` of it. The pairs are in `controlplane/versions`.

use super::{Conversion, Converting, KindVersion, KindVersions, RenameField, Shape};
use crate::apimachinery::value::Value;
use crate::registry::selectable_fields::SelectableFields;
use std::sync::Arc;

/// The conversions between the stored and the served version. Both set `apiVersion` and `kind` and return
/// objects in the normalised shape of their version.
pub(crate) trait Pair: Send + Sync + 'static {
    /// The `apiVersion` of the stored version.
    fn hub(&self) -> String;
    /// The `apiVersion` of the other version.
    fn spoke(&self) -> String;
    /// Converts from the stored to the served version.
    fn serve(&self, stored: Value) -> Value;
    /// Converts from the served to the stored version.
    fn store(&self, served: Value) -> Value;
    /// Sets the defaults that reading the object back from storage would set.
    fn complete(&self, _stored: &mut Value) {}
    /// Annotations that hold fields which only exist in the stored version.
    fn wire_annotations(&self) -> &'static [&'static str] {
        &[]
    }
    /// Maps a selectable field of the stored version to the served name; `None` if the served version does
    /// not support it.
    fn field_names(&self) -> RenameField {
        |name| Some(name)
    }
}

/// A [`Pair`] as a [`Conversion`].
#[derive(Clone)]
pub(crate) struct PairConversion(pub Arc<dyn Pair>);

impl PairConversion {
    /// The index of the version that is not stored.
    pub(crate) const SPOKE: usize = 1;

    /// The versions of the kind. `stored_fields` are the selectable fields of the stored version.
    pub(crate) fn versions(&self, stored_fields: Option<SelectableFields>) -> KindVersions {
        let version = |api_version: String, shape: Option<Arc<dyn Shape>>, fields| KindVersion {
            api_version: api_version.into(),
            shape,
            fields,
        };
        KindVersions {
            versions: vec![
                version(self.0.hub(), Some(Arc::new(self.clone())), stored_fields),
                version(self.0.spoke(), None, None),
            ],
            stored: 0,
            conversion: Arc::new(self.clone()),
        }
    }
}

impl Conversion for PairConversion {
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting {
        let objects = objects.into_iter();
        // There are two versions only, so the target tells the direction.
        Converting::Done(Ok(if to.api_version == self.0.hub() {
            objects.map(|o| self.0.store(o)).collect()
        } else {
            objects.map(|o| self.0.serve(o)).collect()
        }))
    }

    fn stored_fields(&self) -> Option<RenameField> {
        Some(self.0.field_names())
    }
}

/// The shape of the stored version.
impl Shape for PairConversion {
    /// Stored objects of built-in kinds were complete when they were written.
    fn read(&self, _object: &mut Value) {}

    fn converted(&self, object: &mut Value) {
        self.0.complete(object);
    }

    fn fingerprint(&self) -> u64 {
        // 0: nothing is marked, because reading changes nothing that could be remembered.
        0
    }
}
