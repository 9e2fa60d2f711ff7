//! The empty lists and maps of a body that [`normalize`](super::normalize) drops.
//!
//! Upstream drops them too, but only when it encodes the object: validation still sees them, so that `[]` may be
//! refused where an absent list is not, and messages show `[]` instead of `null`.

use super::position::{At, Step};
use torana_apimachinery::value::{Str, Value};

/// More are not recorded: each costs a walk down the object, and nobody reads so many errors.
const MAX: usize = 64;
/// Maximum total length in bytes of the recorded member names, which clients choose.
const MAX_NAMES: usize = 64 << 10;

/// Where a body had empty lists and maps that its normalized form lacks: the first 64, in the order of the schema.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_kube_schema::by_gvk;
/// use torana_kube_schema::decode::{DecodeError, normalize_with_empties};
///
/// # fn main() -> Result<(), DecodeError> {
/// let map = by_gvk("", "v1", "ConfigMap").expect("a built-in kind");
/// let mut object = json!({"metadata": {"name": "a", "labels": {}}, "data": {}});
/// let (_, empties) = normalize_with_empties(map, &mut object)?;
/// assert_eq!(object, json!({"metadata": {"name": "a"}}));
/// let whole = json!({"metadata": {"name": "a", "labels": {}}, "data": {}});
/// assert_eq!(empties.restored(&object), Some(whole));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Empties {
    found: Vec<Empty>,
    names: usize,
}

#[derive(Clone, Debug)]
struct Empty {
    path: Box<[Segment]>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Segment {
    Member(Str),
    Item(usize),
}

impl Empties {
    /// Records the value at `at` if it is an empty list or map.
    pub(super) fn note(&mut self, v: &Value, at: &At<'_>) {
        // Before the steps are collected: a body may have millions of empty lists.
        if self.found.len() == MAX || !matches!(v, Value::Array(_) | Value::Object(_)) {
            return;
        }
        let steps = at.steps();
        let length = |s: &Step<'_>| if let Step::Key(k) = s { k.len() } else { 0 };
        self.names += steps.iter().map(length).sum::<usize>();
        if self.names > MAX_NAMES {
            return;
        }
        let segments = steps.into_iter().filter_map(|step| match step {
            Step::Root => None,
            Step::Field(_, f) => Some(Segment::Member(Str::const_new(f.name))),
            Step::Key(k) => Some(Segment::Member(Str::new(k))),
            Step::Index(i) => Some(Segment::Item(i)),
        });
        self.found.push(Empty {
            path: segments.collect(),
            value: v.clone(),
        });
    }

    /// A copy of `object`, which was normalized and perhaps changed since, with the recorded values back wherever the
    /// object around them still exists and has no such member. `None` if there are none.
    pub fn restored(&self, object: &Value) -> Option<Value> {
        if self.found.is_empty() {
            return None;
        }
        let mut whole = object.clone();
        for empty in &self.found {
            empty.restore(&mut whole);
        }
        Some(whole)
    }

    /// Whether a recorded value is at `path`, which has the form of errors: `spec.containers[0].ports`.
    pub fn is_at(&self, path: &str) -> bool {
        self.found.iter().any(|empty| empty.is_at(path))
    }
}

impl Segment {
    /// The rest of a path after this segment; `None` if the path goes elsewhere.
    fn behind<'p>(&self, path: &'p str) -> Option<&'p str> {
        let bracketed = |text: &str| path.strip_prefix('[')?.strip_prefix(text)?.strip_prefix(']');
        match self {
            Self::Item(i) => bracketed(&i.to_string()),
            // The keys of maps are in brackets, other members behind a dot unless they come first.
            Self::Member(name) => {
                bracketed(name).or_else(|| path.strip_prefix('.').unwrap_or(path).strip_prefix(name.as_str()))
            }
        }
    }
}

impl Empty {
    fn is_at(&self, path: &str) -> bool {
        let rest = self.path.iter().try_fold(path, |rest, segment| segment.behind(rest));
        rest.is_some_and(str::is_empty)
    }

    fn restore(&self, object: &mut Value) {
        let Some((Segment::Member(last), above)) = self.path.split_last() else {
            return;
        };
        let mut at = object;
        for segment in above {
            let below = match (segment, at) {
                (Segment::Member(key), Value::Object(map)) => map.get_mut(key),
                (Segment::Item(i), Value::Array(items)) => items.get_mut(*i),
                _ => None,
            };
            let Some(below) = below else { return };
            at = below;
        }
        if let Value::Object(map) = at
            // Admission may have set the member since, and its value must stay.
            && map.get(last).is_none_or(Value::is_null)
        {
            map.insert(last.clone(), self.value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::by_gvk;
    use crate::decode::normalize_with_empties;
    use torana_apimachinery::json;
    use torana_apimachinery::value::Value;

    #[test]
    fn only_members_that_still_lack_a_value_are_restored() {
        let pod = by_gvk("", "v1", "Pod").unwrap();
        let container = json!({"name": "c", "ports": [], "env": [], "resources": {"limits": {}}});
        let mut object = json!({"spec": {"volumes": [], "containers": [container.clone(), container]}});
        let (_, empties) = normalize_with_empties(pod, &mut object).unwrap();
        assert_eq!(
            object.at(&["spec", "containers"]).items()[0],
            json!({"name": "c", "resources": {}})
        );
        object.set(&["spec", "volumes"], vec![json!({"name": "v"})]);
        object.set(
            &["spec", "containers"],
            vec![json!({"name": "c", "env": [{"name": "E"}]})],
        );
        let whole = empties.restored(&object).unwrap();
        assert_eq!(whole.at(&["spec", "volumes"]), object.at(&["spec", "volumes"]));
        // The second container is gone, and the first one has no `resources` any more.
        let first = json!({"name": "c", "ports": [], "env": [{"name": "E"}]});
        assert_eq!(whole.at(&["spec", "containers"]), &Value::from(vec![first]));
    }

    #[test]
    fn places_are_compared_with_the_paths_of_errors() {
        let pod = by_gvk("", "v1", "Pod").unwrap();
        let mut object =
            json!({"metadata": {"labels": {}}, "spec": {"containers": [{}, {"resources": {"claims": []}}]}});
        let (_, empties) = normalize_with_empties(pod, &mut object).unwrap();
        for path in ["metadata.labels", "spec.containers[1].resources.claims"] {
            assert!(empties.is_at(path), "{path}");
        }
        for path in [
            "metadata",
            "spec",
            "spec.containers[1].resources",
            "spec.containers[0].resources.claims",
            "spec.containers[1].resources.claims[0]",
            "",
        ] {
            assert!(!empties.is_at(path), "{path}");
        }
    }

    #[test]
    fn the_number_of_recorded_values_is_bounded() {
        let pod = by_gvk("", "v1", "Pod").unwrap();
        let containers: Vec<Value> = (0..1_000).map(|_| json!({"ports": []})).collect();
        let mut object = Value::object();
        object.set(&["spec", "containers"], containers);
        let (_, empties) = normalize_with_empties(pod, &mut object).unwrap();
        assert_eq!(empties.found.len(), super::MAX);

        let map = by_gvk("", "v1", "ConfigMap").unwrap();
        let mut object = json!({"data": {}});
        let (_, empties) = normalize_with_empties(map, &mut object).unwrap();
        assert_eq!(empties.found.len(), 1);
    }
}
