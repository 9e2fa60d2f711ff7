//! `metadata.managedFields`: one entry per manager, listing the fields it owns.
//!
//! Start at [`update_managed_fields`], called for create, update and patch; applies go through `merge`. The
//! rules:
//!
//! ```text
//! a write by M changes f         every other entry loses f; M's entry gains it
//! a write removes f              every entry loses f; no entry is created for it
//! an entry becomes empty         it is removed
//! more than ten Update entries   the oldest of each version are merged into "ancient-changes"
//! the object has no entries      an update does not start tracking; a create or an apply does
//! ```

use super::changes::Changes;
use super::fieldset::{FieldSet, MalformedFields, PathElement};
use super::typed::{self, Comparison};
use super::{ApplySchema, OneShape, Versions};
use crate::value::{Map, Str, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of Update entries; beyond it the oldest are merged.
const MAX_UPDATE_ENTRIES: usize = 10;
const ANCIENT: &str = "ancient-changes";

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
    /// Server-side apply.
    Apply,
    /// Create, update, or any patch except apply.
    Update,
}

/// A decoded entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedEntry {
    /// The manager's name.
    pub manager: Str,
    /// The recorded operation.
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
    pub(super) fn of(w: &Writer<'_>, operation: Operation, fields: FieldSet) -> Self {
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

    /// Removes fields from the entry.
    pub(super) fn remove_fields(&mut self, fields: &FieldSet) {
        if self.fields.subtract(fields) {
            self.encoded = None;
        }
    }

    /// Entries with equal identity are merged. Applies of a manager share one entry across versions; updates
    /// have one per version.
    fn identity(&self) -> (Operation, &Str, &Str, Option<&Str>) {
        let version = (self.operation == Operation::Update).then_some(&self.api_version);
        (self.operation, &self.manager, &self.subresource, version)
    }

    pub(super) fn same_manager(&self, other: &Self) -> bool {
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

    fn order(&self) -> (Operation, Option<&str>, &str, &str, &str) {
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
    /// The paths.
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
pub(super) fn decode_owned(list: Value) -> Result<Vec<ManagedEntry>, MalformedEntry> {
    let Value::Array(list) = list else {
        return Ok(Vec::new());
    };
    let all = list.into_iter().map(ManagedEntry::decode);
    let mut all = all.collect::<Result<Vec<ManagedEntry>, MalformedEntry>>()?;
    // Of entries with the same identity the last one wins.
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
pub(super) fn store(object: &mut Value, mut entries: Vec<ManagedEntry>) {
    entries.retain(|e| !e.fields.is_empty());
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    if entries.is_empty() {
        object.unset(&["metadata", "managedFields"]);
    } else {
        let list = entries.into_iter().map(ManagedEntry::encode).collect::<Vec<_>>();
        object.set(&["metadata", "managedFields"], list);
    }
}

/// Removes the fields that no manager owns: object identity, versions, and metadata set only by the server.
/// Other descendants of `metadata`, such as labels, stay.
pub(super) fn strip(set: &mut FieldSet) {
    const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];
    const METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let named = |e: &PathElement, names: &[&str]| matches!(e, PathElement::Field(f) if names.contains(&f.as_str()));
    set.retain(&mut |e| {
        if named(&e.element, &ROOT) {
            e.member = false;
            if e.element == PathElement::Field(Str::const_new("metadata")) {
                e.children.retain(&mut |e| e.member &= !named(&e.element, &METADATA));
            }
        }
    });
}

/// Selects the entries to start from: the client's list if it sent a valid one, otherwise the live one. An
/// empty list, or a list with one empty entry, resets the managed fields. Writes through subresources always
/// start from the live ones.
fn start(live: &Value, sent: &Value, subresource: &str) -> Vec<ManagedEntry> {
    let resets = match sent {
        Value::Array(a) => a.is_empty() || matches!(a.as_slice(), [Value::Object(m)] if m.is_empty()),
        _ => false,
    };
    if subresource.is_empty() && !sent.is_null() {
        if resets {
            return Vec::new();
        }
        if let Ok(mut entries) = decode(sent)
            && !entries.is_empty()
        {
            // The client's encoding may contain unknown elements; dropping the cached form re-encodes only
            // what was understood.
            entries.iter_mut().for_each(|e| e.encoded = None);
            return entries;
        }
    }
    decode(live).unwrap_or_default()
}

/// Updates `metadata.managedFields` of `new` for a create (`live` is `None`), an update or a patch.
///
/// `new` is the object after decoding and defaulting, before admission; its own `managedFields` are the ones
/// the client sent. `reset` lists the fields that writes through this endpoint never own. Both objects must
/// be at the writer's version and normalised the way the server serialises them, so that empty structs
/// compare equal.
pub fn update_managed_fields<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    new: &mut Value,
    writer: &Writer<'_>,
    reset: &FieldSet,
) {
    update_managed_fields_across(schema, live, new, writer, reset, &OneShape);
}

/// [`update_managed_fields`] for a kind whose versions have different shapes.
pub fn update_managed_fields_across<S: ApplySchema>(
    schema: S,
    live: Option<&Value>,
    new: &mut Value,
    writer: &Writer<'_>,
    reset: &FieldSet,
    versions: &dyn Versions<S>,
) {
    let sent = new.unset(&["metadata", "managedFields"]).unwrap_or_default();
    let before = live.map_or(&Value::Null, |l| l.at(&["metadata", "managedFields"]));
    let change = difference(schema, live, new).excluding(reset);
    let no_wish = sent.is_null() || sent == *before || !writer.subresource.is_empty();
    // Fast path: nothing changed, and the client did not touch managed fields.
    if no_wish && live.is_some() && change.is_same() {
        if !before.items().is_empty() {
            new.set(&["metadata", "managedFields"], before.clone());
        }
        return;
    }
    let mut entries = start(before, &sent, writer.subresource);
    // An update does not start tracking an untracked object.
    if live.is_some() && entries.is_empty() {
        return;
    }
    let changes = Changes::new(change, writer.api_version, versions, (live, &*new), &mut entries);
    entries.retain_mut(|e| {
        changes.of(e).remove_from(e);
        !e.fields.is_empty()
    });
    store(new, take(entries, changes.here().acquired, writer));
}

/// Compares the object with its previous state; a new object is compared with its type's zero value.
pub(super) fn difference<S: ApplySchema>(schema: S, live: Option<&Value>, new: &Value) -> Comparison {
    match live {
        Some(l) => typed::compare(l, new, schema),
        None => typed::compare(&schema.empty(), new, schema),
    }
}

/// Gives the writer ownership of the fields it added or modified.
pub(super) fn take(mut entries: Vec<ManagedEntry>, mut taken: FieldSet, writer: &Writer<'_>) -> Vec<ManagedEntry> {
    strip(&mut taken);
    if !taken.is_empty() {
        let mut mine = ManagedEntry::of(writer, Operation::Update, taken);
        mine.time = Some(Str::new(writer.now));
        match entries.iter_mut().find(|e| e.same_manager(&mine)) {
            Some(e) => {
                mine.fields.absorb(std::mem::take(&mut e.fields));
                *e = mine;
            }
            None => entries.push(mine),
        }
    }
    cap(entries)
}

/// Merges the oldest Update entries per version until at most ten are left. Entries of different versions are
/// never merged.
fn cap(mut entries: Vec<ManagedEntry>) -> Vec<ManagedEntry> {
    let mut count = entries.iter().filter(|e| e.operation == Operation::Update).count();
    if count <= MAX_UPDATE_ENTRIES {
        return entries;
    }
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    let (mut kept, updates): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.operation == Operation::Apply);
    // Per version: the oldest entry, which becomes the "ancient-changes" entry once another is merged into
    // it, and the merged sets.
    let mut buckets: BTreeMap<Str, (ManagedEntry, Vec<FieldSet>)> = BTreeMap::new();
    let mut rest = Vec::new();
    for e in updates {
        if count <= MAX_UPDATE_ENTRIES {
            rest.push(e);
        } else if let Some((bucket, merged)) = buckets.get_mut(&e.api_version) {
            bucket.encoded = None;
            bucket.time = e.time;
            bucket.manager = Str::const_new(ANCIENT);
            bucket.subresource = Str::default();
            merged.push(e.fields);
            count -= 1;
        } else {
            buckets.insert(e.api_version.clone(), (e, Vec::new()));
        }
    }
    kept.extend(buckets.into_values().map(|(mut bucket, merged)| {
        bucket.fields = FieldSet::union_of(merged.into_iter().chain([bucket.fields]));
        bucket
    }));
    for e in rest {
        // An entry that already has the bucket's identity is merged into it.
        match kept.iter_mut().find(|k| k.same_manager(&e)) {
            Some(k) => {
                k.encoded = None;
                k.fields.absorb(e.fields);
                k.time = e.time;
            }
            None => kept.push(e),
        }
    }
    kept
}

#[cfg(test)]
pub(super) mod tests;
