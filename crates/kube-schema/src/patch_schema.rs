//! Adapter from the schema table to strategic merge patch: [`PatchType`] implements [`PatchSchema`] for
//! built-in kinds.

use super::{Field, FreeForm, PatchStrategy, Ty, TypeDef};
use torana_apimachinery::patch::strategic::{FieldPatch, PatchSchema};

/// The schema at the patch's current position.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_apimachinery::patch::strategic;
/// use torana_kube_schema::by_gvk;
/// use torana_kube_schema::patch_schema::PatchType;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pod = PatchType::Def(by_gvk("", "v1", "Pod").expect("a built-in kind"));
/// let mut object = json!({"spec": {"containers": [{"name": "a", "image": "a:1", "tty": true}]}});
/// let (patch, _) = strategic::decode(br#"{"spec": {"containers": [{"name": "a", "image": "a:2"}]}}"#)?;
/// strategic::apply(&mut object, patch, pod)?;
/// // Containers are merged by name.
/// assert_eq!(object, json!({"spec": {"containers": [{"name": "a", "image": "a:2", "tty": true}]}}));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum PatchType {
    /// An object with declared fields.
    Def(&'static TypeDef),
    /// Anything else.
    Ty(Ty),
}

impl PatchType {
    fn of(ty: Ty) -> Self {
        match ty {
            Ty::Struct(r) => Self::Def(r.get()),
            // Strategic merge looks up a list's element fields directly on the list.
            Ty::List(t) => Self::of(*t),
            other => Self::Ty(other),
        }
    }
}

fn patched(f: &Field) -> FieldPatch<PatchType> {
    // `retainKeys` alone does not merge lists.
    let merge = matches!(f.patch_strategy, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys);
    FieldPatch {
        schema: PatchType::of(f.ty),
        merge,
        replace: f.patch_strategy == PatchStrategy::Replace,
        merge_key: f.merge_key,
    }
}

impl PatchSchema for PatchType {
    fn field(self, name: &str) -> Option<FieldPatch<Self>> {
        let plain = |schema| {
            Some(FieldPatch {
                schema,
                merge: false,
                replace: false,
                merge_key: None,
            })
        };
        match self {
            Self::Def(d) => d.field(name).map(patched),
            // Free-form objects merge member by member, with no strategy anywhere below.
            Self::Ty(Ty::Any(FreeForm::Object | FreeForm::Patch)) => plain(self),
            Self::Ty(_) => None,
        }
    }

    fn is_map(self) -> bool {
        matches!(self, Self::Ty(Ty::Map(_)))
    }

    fn type_name(self) -> &'static str {
        match self {
            Self::Def(d) => d.go_name(),
            Self::Ty(Ty::Any(FreeForm::RawExtension)) => "RawExtension",
            Self::Ty(Ty::Any(FreeForm::Json)) => "JSON",
            Self::Ty(Ty::Any(FreeForm::FieldsV1)) => "FieldsV1",
            Self::Ty(Ty::SchemaOr(super::SchemaOr::Bool)) => "JSONSchemaPropsOrBool",
            Self::Ty(Ty::SchemaOr(super::SchemaOr::Array)) => "JSONSchemaPropsOrArray",
            Self::Ty(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torana_apimachinery::Value;
    use torana_apimachinery::json;
    use torana_apimachinery::patch::strategic;

    fn patch(kind: (&str, &str, &str), mut doc: Value, patch: &str) -> Result<Value, String> {
        let def = super::super::by_gvk(kind.0, kind.1, kind.2).unwrap();
        let (patch, _) = strategic::decode(patch.as_bytes()).unwrap();
        strategic::apply(&mut doc, patch, PatchType::Def(def))
            .map(|()| doc)
            .map_err(|e| e.message)
    }

    #[test]
    fn nothing_is_merged_in_maps() {
        let slice = ("resource.k8s.io", "v1", "ResourceSlice");
        let doc = json!({"spec": {"devices": [], "sharedCounters": []}, "metadata": {"labels": {"a": "b"}}});
        let order = r#"{"metadata":{"labels":{"$setElementOrder/x":[]}}}"#;
        assert_eq!(
            patch(slice, doc, order),
            Err("merging an object in json but data type is not struct, instead is: map".to_owned())
        );
        let template = json!({"spec": {"hard": {"cpu": {"a": 1}}}});
        assert!(
            patch(
                ("", "v1", "ResourceQuota"),
                template,
                r#"{"spec":{"hard":{"cpu":{"a":2}}}}"#
            )
            .is_err()
        );
    }

    #[test]
    fn keyed_lists_merge_by_their_merge_key() {
        let doc = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "image": "1", "ports": [{"containerPort": 80, "protocol": "TCP"}]}, {"name": "b", "image": "1"}]}}}});
        let body = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"2","ports":[{"containerPort":80,"name":"web"},{"containerPort":443}]}]}}}}"#;
        let got = patch(("apps", "v1", "Deployment"), doc.clone(), body).unwrap();
        assert_eq!(
            *got.at(&["spec", "template", "spec", "containers"]),
            json!([
            {"name": "a", "image": "2", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 443}]},
            {"name": "b", "image": "1"}])
        );
        let body = r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"name":"zzz"}]}]}}}}"#;
        let e = patch(("apps", "v1", "Deployment"), doc, body).unwrap_err();
        assert_eq!(
            e,
            "map: map[name:zzz] does not contain declared merge key: containerPort"
        );
    }

    #[test]
    fn maps_merge_and_undeclared_lists_are_replaced() {
        let doc =
            json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x/1", "x/2"]}, "rules": [{"verbs": ["get"]}]});
        let body = r#"{"metadata":{"labels":{"c":"d"},"finalizers":["x/3","x/1"]},"rules":[{"verbs":["list"]}]}"#;
        let got = patch(("rbac.authorization.k8s.io", "v1", "Role"), doc, body).unwrap();
        let want = json!({"metadata": {"labels": {"a": "b", "c": "d"}, "finalizers": ["x/3", "x/1", "x/2"]}, "rules": [{"verbs": ["list"]}]});
        assert_eq!(got, want);
    }

    #[test]
    fn patch_strategy_replace_replaces_an_object() {
        let doc = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
        let body = r#"{"spec":{"selector":{"matchLabels":{"c":"d"}}}}"#;
        let got = patch(("policy", "v1", "PodDisruptionBudget"), doc, body).unwrap();
        assert_eq!(*got.at(&["spec", "selector", "matchLabels"]), json!({"c": "d"}));
    }
}
