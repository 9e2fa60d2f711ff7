//! `metadata.managedFields`: one entry ([`ManagedEntry`]) per manager, listing the fields it owns.
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

mod entry;

pub use entry::{MalformedEntry, ManagedEntry, Operation, Writer, decode};
pub(super) use entry::{decode_owned, store};

use super::changes::Changes;
use super::check::conforms;
use super::fieldset::{FieldSet, PathElement};
use super::typed::{self, Comparison};
use super::{ApplySchema, OneShape, Versions};
use crate::gvk::GroupVersion;
use crate::value::{Str, Value};
use std::collections::BTreeMap;

/// Maximum number of Update entries; beyond it the oldest are merged.
const MAX_UPDATE_ENTRIES: usize = 10;
const ANCIENT: &str = "ancient-changes";

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
            // `metadata` stays an inner node: labels and annotations below it are owned.
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
    // Subresource writes cannot edit managed fields, as upstream's `fieldmanager.go` ignores them there.
    if subresource.is_empty() && !sent.is_null() {
        if resets {
            return Vec::new();
        }
        if let Ok(mut entries) = decode(sent)
            && !entries.is_empty()
        {
            // The client's encoding may contain unknown elements; dropping the cached form re-encodes only
            // what was understood.
            entries.iter_mut().for_each(ManagedEntry::forget_encoding);
            return entries;
        }
    }
    // Malformed lists from the client are ignored rather than rejected, and so are malformed stored ones.
    decode(live).unwrap_or_default()
}

/// Discards the managed fields of `new`, and returns false, unless it and its previous state have the types of their
/// schema: upstream cannot compare other objects, and stores them without managed fields (`UpdateNoErrors` in
/// `managedfields/internal/fieldmanager.go`). Only custom resources can have a wrong type: validation skips the type of
/// some values with a format, and definitions change.
pub fn discard_unless_typed<S: ApplySchema>(schema: S, live: Option<&Value>, new: &mut Value) -> bool {
    let is_typed = conforms(new, schema) && live.is_none_or(|live| conforms(live, schema));
    if !is_typed {
        new.unset(&["metadata", "managedFields"]);
    }
    is_typed
}

/// Updates `metadata.managedFields` of `new` for a create (`live` is `None`), an update or a patch.
///
/// `new` is the object after decoding and defaulting, before admission; its own `managedFields` are the ones
/// the client sent. `reset` lists the fields that writes through this endpoint never own. Both objects must
/// be at the writer's version and normalised the way the server serialises them, so that empty structs
/// compare equal.
///
/// ```
/// # use torana_apimachinery::Value;
/// # use torana_apimachinery::apply::{ApplySchema, Member, Shape};
/// use torana_apimachinery::apply::{FieldSet, Writer, update_managed_fields};
/// use torana_apimachinery::json;
///
/// # #[derive(Clone, Copy)]
/// # struct Untyped;
/// #
/// # impl ApplySchema for Untyped {
/// #     fn shape(self) -> Shape<Self> {
/// #         Shape::Deduced
/// #     }
/// #     fn member(self, _: &str) -> Option<Member<Self>> {
/// #         Some(Member { schema: self, declared: false })
/// #     }
/// #     fn key(&self, _: usize) -> Option<&str> {
/// #         None
/// #     }
/// #     fn key_default(self, _: &str) -> Option<Value> {
/// #         None
/// #     }
/// #     fn empty(self) -> Value {
/// #         Value::object()
/// #     }
/// # }
/// #
/// // `Untyped` is the schema in the documentation of `ApplySchema`.
/// let now = "2026-01-01T00:00:00Z";
/// let writer = Writer { manager: "editor", subresource: "", api_version: "v1", now };
/// let mut created = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
/// update_managed_fields(Untyped, None, &mut created, &writer, &FieldSet::new());
///
/// let entry = &created.at(&["metadata", "managedFields"]).items()[0];
/// assert_eq!((entry.str_at(&["manager"]), entry.str_at(&["operation"])), ("editor", "Update"));
/// assert!(entry.at(&["fieldsV1", "f:data", "f:k"]).as_object().is_some());
/// ```
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
    // Taken out before comparing; what is stored is rebuilt from `entries` below.
    let sent = new.unset(&["metadata", "managedFields"]).unwrap_or_default();
    let before = live.map_or(&Value::Null, |l| l.at(&["metadata", "managedFields"]));
    let change = difference(schema, live, new).excluding(reset);
    // Upstream cannot compare such objects, and stores them without managed fields.
    if change.untyped {
        return;
    }
    // A client that echoes what it read expresses no wish, which is what every read-modify-write does.
    let no_wish = sent.is_null() || sent == *before || !writer.subresource.is_empty();
    // Fast path: nothing changed, and the client did not touch managed fields.
    if no_wish && live.is_some() && change.is_same() {
        if !before.items().is_empty() {
            // The stored list is reused as it is: decoding and encoding megabytes for a no-op update would dominate
            // it.
            new.set(&["metadata", "managedFields"], before.clone());
        }
        return;
    }
    let mut entries = start(before, &sent, writer.subresource);
    // Upstream fails to convert to such a version, and goes on without managed fields.
    let has_version = |e: &ManagedEntry| e.api_version.is_empty() || GroupVersion::parse(&e.api_version).is_some();
    if !entries.iter().all(has_version) {
        return;
    }
    // An update does not start tracking an untracked object.
    if live.is_some() && entries.is_empty() {
        return;
    }
    let changes = Changes::new(change, writer.api_version, versions, (live, &*new), &mut entries);
    // The writer's own entry loses the fields as well and regains them in `take`, where they merge with its other
    // fields.
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
            // Replaced rather than extended, so that the entry gets the new time and no stale cached encoding.
            Some(e) => {
                mine.fields.absorb(std::mem::take(&mut e.fields));
                *e = mine;
            }
            None => entries.push(mine),
        }
    }
    // Capped on every write; a client can also have sent a list that exceeds the limit.
    cap(entries)
}

/// Merges the oldest Update entries per version until at most ten are left. Entries of different versions are
/// never merged.
fn cap(mut entries: Vec<ManagedEntry>) -> Vec<ManagedEntry> {
    let mut count = entries.iter().filter(|e| e.operation == Operation::Update).count();
    if count <= MAX_UPDATE_ENTRIES {
        return entries;
    }
    // Oldest first: entries are merged in this order.
    entries.sort_by(|a, b| a.order().cmp(&b.order()));
    let (mut kept, updates): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.operation == Operation::Apply);
    // Per version: the oldest entry, which becomes the "ancient-changes" entry once another is merged into
    // it, and the merged sets.
    let mut buckets: BTreeMap<Str, (ManagedEntry, Vec<FieldSet>)> = BTreeMap::new();
    let mut rest = Vec::new();
    for e in updates {
        // Entries are taken until the count is reached, so younger ones stay as they are.
        if count <= MAX_UPDATE_ENTRIES {
            rest.push(e);
        } else if let Some((bucket, merged)) = buckets.get_mut(&e.api_version) {
            bucket.forget_encoding();
            bucket.time = e.time;
            bucket.manager = Str::const_new(ANCIENT);
            // The merged entry speaks for several managers, so it cannot name one subresource.
            bucket.subresource = Str::default();
            merged.push(e.fields);
            count -= 1;
        } else {
            buckets.insert(e.api_version.clone(), (e, Vec::new()));
        }
    }
    kept.extend(buckets.into_values().map(|(mut bucket, merged)| {
        // One union at the end: absorbing entry by entry would re-sort the bucket each time.
        bucket.fields = FieldSet::union_of(merged.into_iter().chain([bucket.fields]));
        bucket
    }));
    for e in rest {
        // An entry that already has the bucket's identity is merged into it.
        match kept.iter_mut().find(|k| k.same_manager(&e)) {
            Some(k) => {
                k.forget_encoding();
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
