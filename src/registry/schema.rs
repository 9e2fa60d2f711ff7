//! What the registry asks of a kind's schema. Implemented for built-in types over the schema table, and for custom
//! resources over their CRD's structural schema.

use crate::api::TypeDef;
use crate::apimachinery::apply::FieldSet;
use crate::apimachinery::apply::managed::{self, Writer};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;

/// Who writes, as managed fields record it.
#[derive(Clone, Debug)]
pub struct ManagerInfo<'a> {
    /// `fieldManager`, or what the User-Agent starts with.
    pub manager: &'a str,
    /// `status`, `scale`, or empty.
    pub subresource: &'a str,
    /// RFC 3339 seconds.
    pub now: &'a str,
    /// `apiVersion` the object was written in.
    pub api_version: &'a str,
}

impl<'a> ManagerInfo<'a> {
    /// As managed fields take it.
    pub fn writer(&self) -> Writer<'a> {
        Writer {
            manager: self.manager,
            subresource: self.subresource,
            api_version: self.api_version,
            now: self.now,
        }
    }
}

/// The paths of a strategy's reset fields (`metadata.labels`) as a set.
pub fn reset_set(paths: &[&str]) -> FieldSet {
    let paths: Vec<Vec<&str>> = paths.iter().map(|p| p.split('.').collect()).collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    managed::reset_fields(&paths)
}

/// A kind's schema, erased at whole-object level.
pub trait Schema: Send + Sync + 'static {
    /// Brings a decoded object into the stored shape: checks types, drops unknown fields and nulls, canonicalises
    /// scalars, adds what Go always writes. Returns one text per unknown field (`unknown field "spec.x"`).
    ///
    /// # Errors
    /// 400 where a value has the wrong type.
    fn normalize(&self, object: &mut Value) -> Result<Vec<String>>;

    /// Applies a strategic merge patch. `None`: this kind has no strategic merge (custom resources: 415).
    fn strategic_merge(&self, object: &Value, patch: &Value) -> Option<Result<Value>>;

    /// Updates `new.metadata.managedFields` for a non-apply write. `reset`: field paths that this (sub)resource's
    /// strategy does not let the writer own (`status`, `metadata.labels`), dot-separated.
    ///
    /// # Errors
    /// As upstream for malformed managed fields.
    fn manage_update(&self, live: Option<&Value>, new: &mut Value, who: &ManagerInfo<'_>, reset: &[&str])
    -> Result<()>;

    /// Server-side apply: the merged object, managed fields included.
    ///
    /// # Errors
    /// 409 with one cause per conflict, 4xx for a malformed patch.
    fn apply(
        &self,
        live: Option<&Value>,
        patch: Value,
        who: &ManagerInfo<'_>,
        force: bool,
        reset: &[&str],
    ) -> Result<Value>;

    /// The built-in type this is, by which objects are read and written in protobuf. `None`: a custom kind, which has
    /// no messages.
    fn definition(&self) -> Option<&'static TypeDef> {
        None
    }

    /// The OpenAPI v3 component of the kind, references as `#/components/schemas/<definition name>`. `None`: a built-in
    /// kind, whose component [`api::openapi`](crate::api::openapi) makes by definition name.
    fn openapi(&self) -> Option<Value> {
        None
    }
}
