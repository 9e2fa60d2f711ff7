//! Translates ownership of the replicas between the managed fields of an object and of its Scale
//! (`k8s.io/apimachinery/pkg/util/managedfields/scalehandler.go`). Entry point: [`ReplicasPaths`].
//!
//! ```text
//! entry of the object            in the Scale              in the object after the write
//! owns the replicas              owns spec.replicas        unchanged if still in the Scale under the same
//!                                                          identity, else without replicas
//! does not own the replicas      none                      unchanged
//! has an unknown version         none                      none
//! -                              new                       owns the replicas, at the version of the request
//! ```

use super::API_VERSION;
use crate::apimachinery::apply::FieldSet;
use crate::apimachinery::apply::fieldset::PathElement;
use crate::apimachinery::value::{Str, Value};
use std::collections::{BTreeMap, HashMap};

const MANAGED: [&str; 2] = ["metadata", "managedFields"];
/// The path in the Scale.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Where the versions of a kind have the replicas.
#[derive(Clone, Debug)]
pub(crate) struct ReplicasPaths {
    /// The `apiVersion` that the request addresses.
    own: Str,
    /// By `apiVersion`; `None` for a version without the subresource.
    paths: HashMap<Str, Option<Vec<PathElement>>>,
}

fn elements<'a>(path: impl IntoIterator<Item = &'a str>) -> Vec<PathElement> {
    path.into_iter()
        .map(|name| PathElement::Field(Str::new(name)))
        .collect()
}

fn fields(entry: &Value) -> FieldSet {
    // Unreadable fields own nothing, as upstream's decoder ignores them.
    FieldSet::decode(entry.get("fieldsV1")).unwrap_or_default()
}

fn owns(entry: &Value, path: &[PathElement]) -> bool {
    fields(entry).has(path)
}

/// The identity of an entry: manager, operation, subresource, and the API version of an update.
///
/// The version of an update differs between object and Scale. An update that owns the replicas is therefore
/// never found again in the Scale, and every write of the Scale moves the replicas to a second entry of the
/// same manager. Upstream does so, too.
type Writer<'a> = [&'a str; 4];

fn writer(entry: &Value) -> Writer<'_> {
    let version = match entry.str_at(&["operation"]) {
        // An applier has one entry, whatever version it applies in.
        "Apply" => "",
        _ => entry.str_at(&["apiVersion"]),
    };
    [
        entry.str_at(&["manager"]),
        entry.str_at(&["operation"]),
        entry.str_at(&["subresource"]),
        version,
    ]
}

/// The entries of an object; the last of several with one identity counts.
fn by_writer(object: &Value) -> BTreeMap<Writer<'_>, &Value> {
    object.at(&MANAGED).items().iter().map(|e| (writer(e), e)).collect()
}

/// The set of one path of fields.
fn set_of(path: &[PathElement]) -> FieldSet {
    let mut set = FieldSet::new();
    set.insert(path);
    set
}

/// The entry reduced to one path, at this API version.
fn reduced(entry: &Value, path: &[PathElement], api_version: &str) -> Value {
    let mut entry = entry.clone();
    entry.set(&["apiVersion"], api_version);
    entry.set(&["fieldsV1"], set_of(path).encode());
    entry
}

impl ReplicasPaths {
    /// A kind with a single version, which has the replicas at `spec.replicas`.
    pub(crate) fn standard(api_version: &str) -> Self {
        Self::new(api_version, [(api_version, Some(REPLICAS.to_vec()))])
    }

    /// `own` is the `apiVersion` of the request; `versions` are those of the kind with the fields that lead
    /// to the replicas, or `None` for a version without the subresource.
    pub(crate) fn new<'a>(own: &str, versions: impl IntoIterator<Item = (&'a str, Option<Vec<&'a str>>)>) -> Self {
        let versions = versions.into_iter();
        Self {
            own: own.into(),
            paths: versions
                .map(|(version, path)| (version.into(), path.map(elements)))
                .collect(),
        }
    }

    /// The path at the version of an entry; the outer `None` for an unknown version.
    fn of(&self, entry: &Value) -> Option<Option<&[PathElement]>> {
        self.paths.get(entry.str_at(&["apiVersion"])).map(Option::as_deref)
    }

    /// Sets the Scale's managed fields from the object's entries that own the replicas.
    pub(crate) fn to_scale(&self, parent: &Value, scale: &mut Value) {
        let in_scale = elements(REPLICAS);
        let owners = by_writer(parent).into_values();
        // An entry of an unknown version cannot be translated and is left out of the Scale.
        let owners: Vec<Value> = owners
            .filter(|e| self.of(e).flatten().is_some_and(|path| owns(e, path)))
            .map(|e| reduced(e, &in_scale, API_VERSION))
            .collect();
        if !owners.is_empty() {
            scale.set(&MANAGED, owners);
        }
    }

    /// Sets the object's managed fields after a write of the Scale.
    pub(crate) fn to_parent(&self, parent: &Value, scale: &Value, new: &mut Value) {
        let in_scale = elements(REPLICAS);
        let before = by_writer(parent);
        let mut owners = by_writer(scale);
        let mut after: BTreeMap<Writer<'_>, Value> = BTreeMap::new();
        for (writer, entry) in &before {
            // Dropped, as upstream does: nothing is known of that version's paths.
            let Some(path) = self.of(entry) else { continue };
            let kept = match path.filter(|path| owns(entry, path)) {
                // `remove` also leaves in `owners` what is new in the Scale.
                Some(path) if owners.remove(writer).is_none() => {
                    let rest = fields(entry).difference(&set_of(path));
                    // An entry that owns nothing is not kept.
                    if rest.is_empty() {
                        continue;
                    }
                    let mut entry = (*entry).clone();
                    entry.set(&["fieldsV1"], rest.encode());
                    entry
                }
                _ => (*entry).clone(),
            };
            after.insert(*writer, kept);
        }
        // Without the subresource in this version nobody can have written through it.
        if let Some(Some(path)) = self.paths.get(&self.own) {
            for (writer, owner) in owners.into_iter().filter(|(_, e)| owns(e, &in_scale)) {
                let mut entry = reduced(owner, path, &self.own);
                // Upstream looks the time up in the object, where only appliers have the same identity.
                match before.get(&writer).map(|e| e.get("time")).filter(|t| !t.is_null()) {
                    Some(time) => entry.set(&["time"], time.clone()),
                    None => {
                        entry.unset(&["time"]);
                    }
                }
                after.insert(writer, entry);
            }
        }
        let mut entries: Vec<Value> = after.into_values().collect();
        // Upstream's order of managed fields entries.
        let order = |e: &Value| {
            ["operation", "time", "manager", "apiVersion", "subresource"].map(|k| e.str_at(&[k]).to_owned())
        };
        entries.sort_by_cached_key(order);
        if entries.is_empty() {
            new.unset(&MANAGED);
        } else {
            new.set(&MANAGED, entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn parent() -> Value {
        json!({"metadata": {"managedFields": [
            {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "a", "operation": "Update", "time": "t",
             "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}}]}})
    }

    #[test]
    fn scaling_moves_ownership_of_replicas_to_the_scaler() {
        let mut scale = json!({});
        ReplicasPaths::standard("apps/v1").to_scale(&parent(), &mut scale);
        assert_eq!(scale.at(&MANAGED).items()[0].str_at(&["apiVersion"]), "autoscaling/v1");
        let mut new = parent();
        ReplicasPaths::standard("apps/v1").to_parent(&parent(), &scale, &mut new);
        let entries = new.at(&MANAGED).items();
        assert_eq!(entries[0].get("fieldsV1"), &json!({"f:spec": {"f:replicas": {}}}));
        assert!(entries[0].get("time").is_null(), "a second entry of the same manager");
        assert_eq!(entries[1].get("fieldsV1"), &json!({"f:spec": {"f:paused": {}}}));
        // The identity of an applier has no version, so that its entry stays.
        let mut applied = parent();
        applied.set(&MANAGED, {
            let mut entry = parent().at(&MANAGED).items()[0].clone();
            entry.set(&["operation"], "Apply");
            vec![entry]
        });
        let (mut scale, mut new) = (json!({}), applied.clone());
        ReplicasPaths::standard("apps/v1").to_scale(&applied, &mut scale);
        ReplicasPaths::standard("apps/v1").to_parent(&applied, &scale, &mut new);
        assert_eq!(new, applied);
        let other = json!({"metadata": {"managedFields": [
            {"apiVersion": "autoscaling/v1", "fieldsType": "FieldsV1", "manager": "b", "operation": "Update", "time": "u",
             "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}});
        ReplicasPaths::standard("apps/v1").to_parent(&parent(), &other, &mut new);
        assert_eq!(
            new,
            json!({"metadata": {"managedFields": [
                {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "b", "operation": "Update", "subresource": "scale",
                 "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                {"apiVersion": "apps/v1", "fieldsType": "FieldsV1", "manager": "a", "operation": "Update", "time": "t",
                 "fieldsV1": {"f:spec": {"f:paused": {}}}}]}})
        );
        ReplicasPaths::standard("apps/v1").to_parent(&parent(), &json!({}), &mut new);
        assert_eq!(
            new.at(&MANAGED).items()[0].get("fieldsV1"),
            &json!({"f:spec": {"f:paused": {}}})
        );
    }

    #[test]
    fn each_version_has_its_own_path() {
        let paths = ReplicasPaths::new(
            "g/v1",
            [
                ("g/v1", Some(vec!["spec", "size"])),
                ("g/v2", Some(vec!["spec", "deep", "count"])),
                ("g/v3", None),
            ],
        );
        let entry = |manager: &str, version: &str, fields: Value| {
            let mut entry = json!({"fieldsType": "FieldsV1", "operation": "Update"});
            entry.set(&["manager"], manager);
            entry.set(&["apiVersion"], version);
            entry.set(&["fieldsV1"], fields);
            entry
        };
        let mut parent = json!({});
        parent.set(
            &MANAGED,
            vec![
                entry("a", "g/v1", json!({"f:spec": {"f:size": {}}})),
                entry("b", "g/v2", json!({"f:spec": {"f:deep": {"f:count": {}, "f:x": {}}}})),
                entry("c", "g/v3", json!({"f:spec": {"f:size": {}}})),
                entry("d", "g/v0", json!({"f:spec": {"f:size": {}}})),
            ],
        );
        let mut scale = json!({});
        paths.to_scale(&parent, &mut scale);
        let managers = |v: &Value| -> Vec<String> {
            v.at(&MANAGED)
                .items()
                .iter()
                .map(|e| e.str_at(&["manager"]).to_owned())
                .collect()
        };
        assert_eq!(managers(&scale), ["a", "b"]);
        let mut taken = json!({});
        taken.set(
            &MANAGED,
            vec![entry("e", "autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}))],
        );
        let mut new = parent.clone();
        paths.to_parent(&parent, &taken, &mut new);
        assert_eq!(managers(&new), ["b", "c", "e"]);
        let left = new.at(&MANAGED).items();
        assert_eq!(left[0].get("fieldsV1"), &json!({"f:spec": {"f:deep": {"f:x": {}}}}));
        assert_eq!(left[2].get("fieldsV1"), &json!({"f:spec": {"f:size": {}}}));
        assert_eq!(left[2].str_at(&["apiVersion"]), "g/v1");
    }
}
