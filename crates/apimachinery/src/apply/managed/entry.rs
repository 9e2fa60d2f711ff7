//! [`ManagedEntry`]: an entry of `metadata.managedFields`, and how the list is read and written.

use crate::apply::fieldset::{FieldSet, MalformedFields};
use crate::value::{Map, Str, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Identifies a write: manager, endpoint, version and time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager's name.
    pub manager: &'a str,
    /// The subresource written through, or `""` for the main resource.
    pub subresource: &'a str,
    /// The API version of the request, in which the fields are recorded.
    pub api_version: &'a str,
    /// The time recorded for the write.
    pub now: &'a str,
}

/// The operation recorded in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A patch of type `application/apply-patch`.
    Apply,
    /// Create, update, or any patch except apply.
    Update,
}

/// A decoded entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedEntry {
    /// `fieldManager` of the request, or what its `User-Agent` begins with.
    pub manager: Str,
    /// Whether the manager applied or updated; entries of the two are never merged.
    pub operation: Operation,
    /// The API version in which the fields are recorded.
    pub api_version: Str,
    /// The subresource written through; empty for the main resource.
    pub subresource: Str,
    /// The time of the last change. Absent after an apply that changed nothing.
    pub time: Option<Str>,
    /// The fields owned. Remove fields only with `ManagedEntry::remove_fields`, which also invalidates the
    /// cached encoding.
    pub fields: FieldSet,
    /// The entry as it was read; reused on encoding while the entry is unchanged.
    encoded: Option<Value>,
}

impl ManagedEntry {
    /// Creates an entry for this writer, without a time.
    pub(crate) fn of(w: &Writer<'_>, operation: Operation, fields: FieldSet) -> Self {
        Self {
            manager: Str::new(w.manager),
            operation,
            api_version: Str::new(w.api_version),
            subresource: Str::new(w.subresource),
            time: None,
            fields,
            encoded: None,
        }
    }

    /// Drops the cached encoding, after a change or if the client's encoding cannot be trusted.
    pub(super) fn forget_encoding(&mut self) {
        self.encoded = None;
    }

    /// Removes fields from the entry.
    pub(crate) fn remove_fields(&mut self, fields: &FieldSet) {
        // The cached encoding survives if nothing was removed; most writes touch one entry of many.
        if self.fields.subtract(fields) {
            self.encoded = None;
        }
    }

    /// Entries with equal identity are merged. Applies of a manager share one entry across versions; updates
    /// have one per version.
    fn identity(&self) -> (Operation, &Str, &Str, Option<&Str>) {
        // Apply entries are shared across versions because a manager's next apply replaces all it applied before, at
        // whatever version.
        let version = (self.operation == Operation::Update).then_some(&self.api_version);
        (self.operation, &self.manager, &self.subresource, version)
    }

    pub(crate) fn same_manager(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn decode(v: Value) -> Result<Self, MalformedEntry> {
        let operation = match v.str_at(&["operation"]) {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            other => return Err(MalformedEntry::Operation(other.to_owned())),
        };
        if v.str_at(&["apiVersion"]).is_empty() {
            return Err(MalformedEntry::NoApiVersion);
        }
        if v.str_at(&["fieldsType"]) != "FieldsV1" {
            return Err(MalformedEntry::FieldsType);
        }
        let fields = match v.get("fieldsV1") {
            Value::Null => FieldSet::new(),
            f => FieldSet::decode(f)?,
        };
        Ok(Self {
            manager: Str::new(v.str_at(&["manager"])),
            operation,
            api_version: Str::new(v.str_at(&["apiVersion"])),
            subresource: Str::new(v.str_at(&["subresource"])),
            time: v.get("time").as_str().map(Str::new),
            fields,
            // Kept whole, so that unchanged entries are written back byte for byte without encoding their paths
            // again.
            encoded: Some(v),
        })
    }

    fn encode(self) -> Value {
        if let Some(v) = self.encoded {
            return v;
        }
        let mut m = Map::new();
        m.insert("apiVersion", self.api_version.clone());
        m.insert("fieldsType", "FieldsV1");
        m.insert("fieldsV1", self.fields.encode());
        if !self.manager.is_empty() {
            m.insert("manager", self.manager.clone());
        }
        m.insert(
            "operation",
            if self.operation == Operation::Apply {
                // Optional members are omitted when empty, as Go's `omitempty` does.
                "Apply"
            } else {
                "Update"
            },
        );
        if !self.subresource.is_empty() {
            m.insert("subresource", self.subresource.clone());
        }
        if let Some(t) = &self.time {
            m.insert("time", t.clone());
        }
        Value::Object(m)
    }

    pub(super) fn order(&self) -> (Operation, Option<&str>, &str, &str, &str) {
        // Times are in UTC with whole seconds, so they sort as text; a missing time sorts first.
        (
            self.operation,
            self.time.as_deref(),
            &self.manager,
            &self.api_version,
            &self.subresource,
        )
    }
}

/// Why an entry of `metadata.managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedEntry {
    /// An operation that does not exist.
    #[error("operation is `{0}`, not `Apply` or `Update`")]
    Operation(String),
    /// The version that the paths belong to is missing.
    #[error("apiVersion must be set")]
    NoApiVersion,
    /// An unknown encoding of the paths.
    #[error("fieldsType must be `FieldsV1`")]
    FieldsType,
    /// `fieldsV1` does not decode.
    #[error(transparent)]
    Fields(#[from] MalformedFields),
}

/// Decodes `metadata.managedFields`.
///
/// # Errors
/// The first invalid entry.
pub fn decode(list: &Value) -> Result<Vec<ManagedEntry>, MalformedEntry> {
    decode_owned(list.clone())
}

/// Like [`decode`], but reuses the list's memory.
pub(crate) fn decode_owned(list: Value) -> Result<Vec<ManagedEntry>, MalformedEntry> {
    let Value::Array(list) = list else {
        return Ok(Vec::new());
    };
    let all = list.into_iter().map(ManagedEntry::decode);
    let mut all = all.collect::<Result<Vec<ManagedEntry>, MalformedEntry>>()?;
    // Upstream decodes into a map keyed by identity, so later entries overwrite earlier ones.
    // Collected first and removed in one pass: the list is the client's, and removing one by one would be quadratic.
    let again: BTreeSet<usize> = {
        let mut last = BTreeMap::new();
        let places = all.iter().enumerate();
        places.filter_map(|(i, e)| last.insert(e.identity(), i)).collect()
    };
    if !again.is_empty() {
        let mut places = 0..;
        all.retain(|_| places.next().is_none_or(|i| !again.contains(&i)));
    }
    Ok(all)
}

/// Writes entries to `metadata.managedFields` in upstream's order; removes the field if there are none.
pub(crate) fn store(object: &mut Value, mut entries: Vec<ManagedEntry>) {
    // An entry may have lost its last field to this write.
    entries.retain(|e| !e.fields.is_empty());
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    if entries.is_empty() {
        object.unset(&["metadata", "managedFields"]);
    } else {
        let list = entries.into_iter().map(ManagedEntry::encode).collect::<Vec<_>>();
        object.set(&["metadata", "managedFields"], list);
    }
}
