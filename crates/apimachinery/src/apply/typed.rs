//! Schema-guided walks: the field set of an object ([`to_field_set`]) and the difference between two objects
//! (`compare`).
//!
//! Corresponds to the `typed` package of structured-merge-diff. `managed` and `merge` derive the
//! ownership of fields from the results.

use super::fieldset::{self, Entry, FieldSet, PathElement};
use super::{ApplySchema, Member, Shape};
use crate::interrupt::{checkpoint, pause, pausing};
use crate::value::{Map, Str, Value};

/// The fields in which two objects differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Fields only in the new object.
    pub added: FieldSet,
    /// Fields in both objects, with different values.
    pub modified: FieldSet,
    /// Fields only in the old object.
    pub removed: FieldSet,
    /// An item of a list in one of the objects has no identity, so that upstream cannot read that object by its
    /// schema. Not known of parts that are equal.
    pub untyped: bool,
}

impl Comparison {
    /// True if the objects do not differ.
    pub(crate) fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Removes the fields in `ignored` and everything below them.
    pub(crate) fn excluding(mut self, ignored: &FieldSet) -> Self {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.exclude(ignored);
        }
        self
    }

    fn put(&mut self, element: PathElement, own: OwnChange, below: Self) {
        self.untyped |= below.untyped;
        let sets = [
            (&mut self.added, OwnChange::Added, below.added),
            (&mut self.modified, OwnChange::Modified, below.modified),
            (&mut self.removed, OwnChange::Removed, below.removed),
        ];
        for (set, kind, below) in sets {
            if own == kind || !below.is_empty() {
                set.put(element.clone(), own == kind, below);
            }
        }
    }
}

/// The change of the value at a path itself, apart from its descendants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnChange {
    Same,
    Added,
    Modified,
    Removed,
}

/// The schema's shape, with [`Shape::Deduced`] and [`Shape::Untyped`] resolved from the value.
pub(super) fn shape_of<S: ApplySchema>(schema: S, v: &Value) -> Shape<S> {
    match schema.shape() {
        Shape::Deduced => match v {
            // Only the value can decide: custom resources with `x-kubernetes-preserve-unknown-fields` have parts
            // without a schema.
            Value::Object(_) => Shape::Object,
            Value::Array(_) => Shape::AtomicList,
            _ => Shape::Scalar(super::Scalar::Untyped),
        },
        Shape::Untyped => match v {
            Value::Object(_) => Shape::AtomicObject,
            Value::Array(_) => Shape::AtomicList,
            _ => Shape::Scalar(super::Scalar::Untyped),
        },
        s => s,
    }
}

/// Why a list item has no identity. Messages as structured-merge-diff words them.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoIdentity {
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
    #[error("associative list with keys may not have a null element")]
    KeysOfNull,
    #[error("associative list with keys may not have non-map elements")]
    KeysOfScalar,
    #[error("associative list without keys has an element that's an explicit null")]
    Null,
    #[error("associative list without keys has an element that's a map type")]
    Map,
    #[error("not supported: associative list with lists as elements")]
    List,
}

/// Returns the path element that identifies a list item.
///
/// # Errors
/// The item cannot be identified.
pub(super) fn item_element<S: ApplySchema>(list: S, shape: Shape<S>, item: &Value) -> Result<PathElement, NoIdentity> {
    pause();
    match (shape, item) {
        (Shape::Keyed(of), Value::Object(m)) => {
            // Most lists have one key, and a set has an element for each item.
            let mut pairs = Vec::with_capacity(1);
            let mut i = 0;
            while let Some(key) = list.key(i) {
                // An absent key with a default (`protocol: TCP` of a container port) must identify the same item as
                // an explicit one.
                if let Some(v) = m.get(key).cloned().or_else(|| of.key_default(key)) {
                    pairs.push((Str::new(key), v));
                }
                i += 1;
            }
            // Some keys may be missing, but not all.
            if pairs.is_empty() {
                let keys: Vec<String> = (0..i).filter_map(|i| list.key(i).map(|k| format!("{k:?}"))).collect();
                return Err(NoIdentity::NoKeys(keys.join(" ")));
            }
            // Keys compare pairwise in this order, and the encoded form in `fieldsV1` is sorted by name.
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(PathElement::Key(pairs))
        }
        (Shape::Keyed(_), Value::Null) => Err(NoIdentity::KeysOfNull),
        (Shape::Keyed(_), _) => Err(NoIdentity::KeysOfScalar),
        (_, Value::Null) => Err(NoIdentity::Null),
        (_, Value::Object(_)) => Err(NoIdentity::Map),
        (_, Value::Array(_)) => Err(NoIdentity::List),
        (_, v) => Ok(PathElement::Value(v.clone())),
    }
}

/// The fields an applier of `v` owns: leaves, list items and map keys, but not the structs that contain them.
pub fn to_field_set<S: ApplySchema>(v: &Value, schema: S) -> FieldSet {
    fields_below(v, schema).1
}

/// Returns whether the value is a leaf, and the set below it.
fn fields_below<S: ApplySchema>(v: &Value, schema: S) -> (bool, FieldSet) {
    checkpoint();
    let mut out = FieldSet::new();
    let shape = shape_of(schema, v);
    match (shape, v) {
        (Shape::Object, Value::Object(m)) => {
            for (k, v) in m.iter() {
                let Some(Member { schema, declared }) = schema.member(k) else {
                    continue;
                };
                let (leaf, below) = fields_below(v, schema);
                // Keys of maps are data a manager creates, so they are owned as such; declared fields exist by their
                // type.
                out.put(PathElement::Field(Str::new(k)), leaf || !declared, below);
            }
            // An empty object is a leaf: a manager can own its presence.
            (m.is_empty(), out)
        }
        (Shape::Set(of) | Shape::Keyed(of), Value::Array(a)) => {
            let mut entries = Vec::with_capacity(a.len());
            for item in a {
                let Ok(element) = item_element(schema, shape, item) else {
                    continue;
                };
                let children = fields_below(item, of).1;
                fieldset::push(
                    &mut entries,
                    Entry {
                        element,
                        member: true,
                        children,
                    },
                );
            }
            // A list of individually owned items is never a leaf, not even when it is empty.
            (false, FieldSet::of_entries(entries))
        }
        _ => (true, out),
    }
}

/// Compares two objects. List items that cannot be identified are ignored.
pub(crate) fn compare<S: ApplySchema>(old: &Value, new: &Value, schema: S) -> Comparison {
    let mut out = Comparison::default();
    compare_below(Some(old), Some(new), schema, 0, &mut out);
    out
}

fn is_empty_container(v: Option<&Value>) -> bool {
    match v {
        None | Some(Value::Null) => true,
        Some(Value::Object(m)) => m.is_empty(),
        Some(Value::Array(a)) => a.is_empty(),
        _ => false,
    }
}

fn presence(old: Option<&Value>, new: Option<&Value>) -> OwnChange {
    match (old, new) {
        (None, Some(_)) => OwnChange::Added,
        (Some(_), None) => OwnChange::Removed,
        _ => OwnChange::Same,
    }
}

/// Compares a value that is owned as a whole.
fn leaf(old: Option<&Value>, new: Option<&Value>) -> OwnChange {
    match (old, new) {
        (Some(a), Some(b)) if a != b => OwnChange::Modified,
        _ => presence(old, new),
    }
}

fn compare_below<S: ApplySchema>(
    old: Option<&Value>,
    new: Option<&Value>,
    schema: S,
    depth: usize,
    out: &mut Comparison,
) -> OwnChange {
    /// Depth limit of the equality shortcut. Comparing whole subtrees at every level of a deep tree would be
    /// quadratic.
    const LOOKED_AT: usize = 16;
    if let (Some(a), Some(b)) = (old, new)
        && depth < LOOKED_AT
        && a == b
    {
        return OwnChange::Same;
    }
    checkpoint();
    let depth = depth + 1;
    // A null takes the shape of the other side.
    let decisive = new
        .filter(|v| !v.is_null())
        .or(old.filter(|v| !v.is_null()))
        .unwrap_or(&Value::Null);
    let shape = shape_of(schema, decisive);
    if let Some(o) = old
        && !o.is_null()
        && !decisive.is_null()
        && matches!(schema.shape(), Shape::Deduced)
        && std::mem::discriminant(o) != std::mem::discriminant(decisive)
    {
        return changed_form(o, decisive, schema, depth, out);
    }
    match shape {
        Shape::Object if !(is_empty_container(old) && is_empty_container(new)) => {
            compare_objects(
                old.and_then(Value::as_object),
                new.and_then(Value::as_object),
                schema,
                depth,
                out,
            );
            presence(old, new)
        }
        Shape::Set(of) | Shape::Keyed(of) if !(is_empty_container(old) && is_empty_container(new)) => {
            compare_lists(
                old.map_or(&[], Value::items),
                new.map_or(&[], Value::items),
                (schema, shape, of),
                depth,
                out,
            );
            presence(old, new)
        }
        _ => leaf(old, new),
    }
}

/// Compares a schemaless value that changed its type among object, list and scalar.
fn changed_form<S: ApplySchema>(old: &Value, new: &Value, schema: S, depth: usize, out: &mut Comparison) -> OwnChange {
    if let Value::Object(m) = old {
        compare_objects(Some(m), None, schema, depth, out);
    }
    if let Value::Object(m) = new {
        compare_objects(None, Some(m), schema, depth, out);
    }
    OwnChange::Modified
}

fn compare_objects<S: ApplySchema>(
    old: Option<&Map>,
    new: Option<&Map>,
    schema: S,
    depth: usize,
    out: &mut Comparison,
) {
    let none = Map::new();
    let (mut a, mut b) = (
        old.unwrap_or(&none).iter().peekable(),
        new.unwrap_or(&none).iter().peekable(),
    );
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) => x.cmp(y),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return,
        };
        let x = if order.is_le() { a.next() } else { None };
        let y = if order.is_ge() { b.next() } else { None };
        let Some((key, _)) = x.or(y) else { return };
        let Some(member) = schema.member(key) else { continue };
        let mut below = Comparison::default();
        let own = compare_below(x.map(|p| p.1), y.map(|p| p.1), member.schema, depth, &mut below);
        out.put(PathElement::Field(Str::new(key)), own, below);
    }
}

fn compare_lists<S: ApplySchema>(
    old: &[Value],
    new: &[Value],
    (list, shape, of): (S, Shape<S>, S),
    depth: usize,
    out: &mut Comparison,
) {
    let all = old.len() + new.len();
    let (old, new) = (sorted_items(old, list, shape), sorted_items(new, list, shape));
    out.untyped |= old.len() + new.len() < all;
    let (mut a, mut b) = (old.as_slice(), new.as_slice());
    while let Some((element, _)) = [a.first(), b.first()]
        .into_iter()
        .flatten()
        .min_by(|x, y| x.0.cmp(&y.0))
    {
        let (before, after) = (run(&mut a, element), run(&mut b, element));
        let mut below = Comparison::default();
        // Items with the same element are duplicates, compared as a single value.
        let own = match (before, after) {
            ([x], [y]) => compare_below(Some(x.1), Some(y.1), of, depth, &mut below),
            ([x], []) => compare_below(Some(x.1), None, of, depth, &mut below),
            ([], [y]) => compare_below(None, Some(y.1), of, depth, &mut below),
            (_, []) => OwnChange::Removed,
            ([], _) => OwnChange::Added,
            (x, y) if x.iter().map(|i| i.1).eq(y.iter().map(|i| i.1)) => OwnChange::Same,
            _ => OwnChange::Modified,
        };
        out.put(element.clone(), own, below);
    }
}

type Item<'v> = (PathElement, &'v Value);

/// Sorts items by path element; the sort is stable, so duplicates keep their source order.
fn sorted_items<'v, S: ApplySchema>(items: &'v [Value], list: S, shape: Shape<S>) -> Vec<Item<'v>> {
    let element = |v: &'v Value| item_element(list, shape, v).ok().map(|e| (e, v));
    let mut all: Vec<Item<'v>> = items.iter().filter_map(element).collect();
    all.sort_by(pausing(|a: &Item<'_>, b: &Item<'_>| a.0.cmp(&b.0)));
    all
}

/// Splits off the leading items identified by `element`.
fn run<'i, 'v>(items: &mut &'i [Item<'v>], element: &PathElement) -> &'i [Item<'v>] {
    let n = items.iter().take_while(|i| i.0 == *element).count();
    let (front, rest) = items.split_at(n);
    *items = rest;
    front
}
