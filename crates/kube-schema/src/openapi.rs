//! OpenAPI schemas of the built-in kinds, in both dialects upstream serves.
//!
//! Start at [`Components::schemas`]. Nothing is cached here: the compressed descriptions are inflated while a
//! document is built and dropped with the [`Components`]. Paths and whole documents are assembled by
//! `endpoints`.

use super::{Emit, Field, FreeForm, ListType, MapType, PatchStrategy, SchemaOr, Ty, TypeDef, by_name, types};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::LazyLock;
use torana_apimachinery::json;
use torana_apimachinery::value::{Map, Value};

/// All descriptions, deflated: NUL-terminated, each definition's own before those of its fields, in table
/// order.
static DESCRIPTIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.bin"));

/// Descriptions of query parameters: pairs of `<options kind>.<field in lower case>` and the text, each
/// NUL-terminated.
static PARAMETERS: &str = include_str!(concat!(env!("OUT_DIR"), "/parameters.txt"));

/// Upstream's description of a query parameter, a field of an options kind such as `ListOptions` or
/// `PodLogOptions`.
pub fn parameter(options: &str, name: &str) -> Option<&'static str> {
    /// By options kind, then by field.
    // Parsed on first use; most servers never serve the documents that need them.
    static TEXTS: LazyLock<BTreeMap<&str, Vec<(&str, &str)>>> = LazyLock::new(|| {
        let mut all: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut texts = PARAMETERS.split('\0');
        while let (Some(key), Some(text)) = (texts.next(), texts.next()) {
            if let Some((kind, field)) = key.split_once('.') {
                all.entry(kind).or_default().push((field, text));
            }
        }
        all
    });
    let fields = TEXTS.get(options)?;
    let found = fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, text)| *text)
}

/// Types that belong to every group: their schemas list the group versions of the document they appear in.
const EVERYWHERE: [&str; 2] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
];

/// The description of `apiVersion` in every kind.
pub const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
/// The description of `kind` in every kind.
pub const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The OpenAPI version a schema is rendered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0: references into `#/definitions/`, no defaults.
    V2,
    /// OpenAPI 3.0: references into `#/components/schemas/`, wrapped in `allOf` if they have sibling keys.
    V3,
}

/// The inflated descriptions (about 1 MB), held while documents are being built.
///
/// ```
/// use torana_kube_schema::openapi::{Components, Dialect, closure};
///
/// // A ConfigMap, and all that it refers to.
/// let names = closure(["io.k8s.api.core.v1.ConfigMap"]);
/// let schemas = Components::load().schemas(Dialect::V3, &names, &[("", "v1")]);
/// assert!(schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
/// ```
#[derive(Debug)]
pub struct Components {
    text: String,
    /// Byte offset of each definition's descriptions, in table order.
    starts: Vec<usize>,
}

/// The v3 schema of one definition, or `None` if it does not exist.
///
/// Inflates all descriptions on each call; use [`Components`] to build a whole document.
///
/// ```
/// use torana_kube_schema::openapi::component;
///
/// let schema = component("io.k8s.api.core.v1.ConfigMap").expect("a built-in type");
/// assert_eq!(schema.str_at(&["properties", "data", "type"]), "object");
/// assert!(schema.str_at(&["description"]).starts_with("ConfigMap holds configuration data"));
/// ```
pub fn component(name: &str) -> Option<Value> {
    Some(Components::load().schema(Dialect::V3, by_name(name)?, &[]))
}

/// The transitive closure of `names` under references, sorted and without duplicates; unknown names are
/// skipped.
pub fn closure<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    let mut seen: BTreeSet<&'static str> = BTreeSet::new();
    let mut open: Vec<&'static TypeDef> = names.into_iter().filter_map(by_name).collect();
    // A definition that was seen is not opened again: JSON schemas are recursive.
    while let Some(def) = open.pop() {
        if seen.insert(def.name) {
            open.extend(
                def.fields
                    .iter()
                    .filter_map(|f| reference(element(f.ty)))
                    .filter_map(by_name),
            );
        }
    }
    seen.into_iter().collect()
}

/// The innermost element type of a list or map.
fn element(ty: Ty) -> Ty {
    match ty {
        Ty::List(t) | Ty::Map(t) => element(*t),
        t => t,
    }
}

/// The definition a type is rendered as a `$ref` to, if any.
fn reference(ty: Ty) -> Option<&'static str> {
    Some(match ty {
        Ty::Struct(r) => r.get().name,
        Ty::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Ty::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Ty::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Ty::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Ty::Any(FreeForm::RawExtension) => "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Ty::Any(FreeForm::FieldsV1) => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        Ty::Any(FreeForm::Patch) => "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
        Ty::Any(FreeForm::Json) => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        Ty::SchemaOr(SchemaOr::Bool) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        Ty::SchemaOr(SchemaOr::Array) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        Ty::SchemaOr(SchemaOr::StringArray) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
        }
        _ => return None,
    })
}

impl Components {
    /// Inflates the descriptions. Takes a few milliseconds: keep it off request paths.
    pub fn load() -> Self {
        let mut text = String::new();
        let read = flate2::read::DeflateDecoder::new(DESCRIPTIONS).read_to_string(&mut text);
        read.expect("the generator deflated this text");
        let mut ends = text.bytes().enumerate().filter(|(_, b)| *b == 0).map(|(i, _)| i + 1);
        let mut starts = Vec::with_capacity(types().len());
        let mut at = 0;
        for def in types() {
            starts.push(at);
            // Skips the definition's own description and one per field.
            at = ends
                .nth(def.fields.len())
                .expect("the text has one description for each row");
        }
        Self { text, starts }
    }

    /// `{name: schema}` of these definitions.
    ///
    /// `group_versions` are the one a v3 document describes, or all served ones for v2: `DeleteOptions` and
    /// `WatchEvent` list themselves as kinds of each.
    pub fn schemas(&self, dialect: Dialect, names: &[&str], group_versions: &[(&str, &str)]) -> Map {
        let defs = names.iter().filter_map(|n| by_name(n));
        defs.map(|def| (def.name, self.schema(dialect, def, group_versions)))
            .collect()
    }

    /// The schema of one definition; see [`Components::schemas`].
    pub fn schema(&self, dialect: Dialect, def: &'static TypeDef, group_versions: &[(&str, &str)]) -> Value {
        let place = types().partition_point(|t| t.name < def.name);
        let mut texts = self.text[self.starts[place]..].split('\0');
        let mut out = Map::new();
        describe(&mut out, texts.next());
        match def.scalar {
            Some(ty) => scalar_form(dialect, ty, &mut out),
            None => drop(out.insert("type", "object")),
        }
        let mut properties = Map::new();
        let mut required: Vec<&Field> = Vec::new();
        for (f, text) in def.fields.iter().zip(texts) {
            properties.insert(f.name, property(dialect, f, text, def.enumeration(f.name)));
            if f.required {
                required.push(f);
            }
        }
        // Upstream lists required fields in Go source order, which the protobuf numbers follow.
        required.sort_by_key(|f| f.tag);
        if !properties.is_empty() {
            out.insert("properties", properties);
        }
        if !required.is_empty() {
            out.insert("required", required.iter().map(|f| f.name).collect::<Vec<_>>());
        }
        if def.atomic {
            out.insert("x-kubernetes-map-type", "atomic");
        }
        if let Some(union) = def.union {
            out.insert("x-kubernetes-unions", literal(union));
        }
        let gvks = gvks(def, group_versions);
        if !gvks.is_empty() {
            out.insert("x-kubernetes-group-version-kind", gvks);
        }
        Value::Object(out)
    }
}

fn literal(json: &str) -> Value {
    torana_apimachinery::codec::json::decode(json.as_bytes()).expect("the table holds JSON")
}

fn describe(out: &mut Map, text: Option<&str>) {
    if let Some(text) = text.filter(|t| !t.is_empty()) {
        out.insert("description", text);
    }
}

fn gvks(def: &TypeDef, group_versions: &[(&str, &str)]) -> Vec<Value> {
    let kind = def.go_name();
    // A set, because `DeleteOptions` is listed under `v1` already; also sorts as upstream does.
    let mut all: BTreeSet<(&str, &str, &str)> = def.gvks.iter().copied().collect();
    if EVERYWHERE.contains(&def.name) {
        all.insert(("", "v1", kind));
        all.extend(group_versions.iter().map(|(g, v)| (*g, *v, kind)));
    }
    all.into_iter()
        .map(|(group, version, kind)| json!({"group": group, "version": version, "kind": kind}))
        .collect()
}

/// Writes the type of a definition that is not an object with fields.
fn scalar_form(dialect: Dialect, ty: Ty, out: &mut Map) {
    match (ty, dialect) {
        (Ty::Time | Ty::MicroTime, _) => {
            out.insert("type", "string");
            out.insert("format", "date-time");
        }
        (Ty::Quantity, Dialect::V2) => drop(out.insert("type", "string")),
        (Ty::Quantity, Dialect::V3) => drop(out.insert("oneOf", json!([{"type": "string"}, {"type": "number"}]))),
        (Ty::IntOrString, Dialect::V2) => {
            out.insert("type", "string");
            out.insert("format", "int-or-string");
        }
        (Ty::IntOrString, Dialect::V3) => {
            out.insert("oneOf", json!([{"type": "integer"}, {"type": "string"}]));
            out.insert("format", "int-or-string");
        }
        (Ty::Any(FreeForm::Json) | Ty::SchemaOr(_), _) => {}
        _ => drop(out.insert("type", "object")),
    }
}

fn property(dialect: Dialect, f: &Field, text: &str, values: &[&str]) -> Value {
    let default = match (dialect, f.default) {
        // Swagger 2.0 documents of upstream state no defaults.
        (Dialect::V2, _) => None,
        (_, Some(json)) => Some(literal(json)),
        _ if f.emit == Emit::Zero => element_default(f.ty),
        _ => None,
    };
    // For lists and maps the enum applies to the elements, and the description does not list it.
    let text = match f.ty {
        Ty::List(_) | Ty::Map(_) => Cow::Borrowed(text),
        _ => with_values(text, values),
    };
    let mut out = schema(dialect, f.ty, Some(&text), default);
    if !values.is_empty() {
        // The enum belongs to the strings inside.
        let strings = match f.ty {
            Ty::List(_) => out.object_entry("items"),
            Ty::Map(_) => out.object_entry("additionalProperties"),
            _ => &mut out,
        };
        strings.insert("enum", values.to_vec());
    }
    match f.list {
        ListType::None => {}
        ListType::Atomic => drop(out.insert("x-kubernetes-list-type", "atomic")),
        ListType::Set => drop(out.insert("x-kubernetes-list-type", "set")),
        ListType::Map(keys) => {
            out.insert("x-kubernetes-list-type", "map");
            out.insert("x-kubernetes-list-map-keys", keys.to_vec());
        }
    }
    if f.map_type_explicit {
        out.insert(
            "x-kubernetes-map-type",
            if f.map == MapType::Atomic { "atomic" } else { "granular" },
        );
    }
    let strategy = match f.patch_strategy {
        PatchStrategy::None => None,
        PatchStrategy::Merge => Some("merge"),
        PatchStrategy::RetainKeys => Some("retainKeys"),
        PatchStrategy::MergeRetainKeys => Some("merge,retainKeys"),
        PatchStrategy::Replace => Some("replace"),
    };
    if let Some(strategy) = strategy {
        out.insert("x-kubernetes-patch-strategy", strategy);
    }
    if let Some(key) = f.merge_key {
        out.insert("x-kubernetes-patch-merge-key", key);
    }
    Value::Object(out)
}

/// Appends the enum values to a description. Upstream also appends a description of each value, which the
/// source of the table does not contain.
fn with_values<'a>(text: &'a str, values: &[&str]) -> Cow<'a, str> {
    if values.is_empty() {
        return Cow::Borrowed(text);
    }
    // Go's `%q` in backquotes.
    let lines: String = values.iter().map(|v| format!("\n - `{v:?}`")).collect();
    Cow::Owned(format!("{text}\n\nPossible enum values:{lines}"))
}

/// The default that v3 documents state for a field that Go does not hold by pointer.
fn element_default(ty: Ty) -> Option<Value> {
    match ty {
        Ty::Struct(_) => Some(Value::object()),
        Ty::String | Ty::Int32 | Ty::Int64 | Ty::Float | Ty::Bool => Some(super::decode::zero(ty)),
        _ => None,
    }
}

fn schema(dialect: Dialect, ty: Ty, text: Option<&str>, default: Option<Value>) -> Map {
    let mut out = Map::new();
    describe(&mut out, text);
    if let Some(default) = default {
        out.insert("default", default);
    }
    if let Some(name) = reference(ty) {
        match dialect {
            Dialect::V2 => drop(out.insert("$ref", format!("#/definitions/{name}"))),
            Dialect::V3 if out.is_empty() => drop(out.insert("$ref", format!("#/components/schemas/{name}"))),
            // OpenAPI 3.0 ignores siblings of `$ref`.
            Dialect::V3 => drop(out.insert("allOf", json!([{"$ref": (format!("#/components/schemas/{name}"))}]))),
        }
        return out;
    }
    let inner = |t: Ty| schema(dialect, t, None, None);
    let (kind, format) = match ty {
        Ty::Int32 => ("integer", "int32"),
        Ty::Int64 => ("integer", "int64"),
        Ty::Float => ("number", "double"),
        Ty::Bool => ("boolean", ""),
        Ty::Bytes => ("string", "byte"),
        Ty::List(t) => {
            out.insert("items", inner(*t));
            ("array", "")
        }
        Ty::Map(t) => {
            out.insert("additionalProperties", inner(*t));
            ("object", "")
        }
        Ty::Any(_) => ("object", ""),
        _ => ("string", ""),
    };
    out.insert("type", kind);
    if !format.is_empty() {
        out.insert("format", format);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_with_siblings_are_wrapped_in_all_of() {
        let deployment = component("io.k8s.api.apps.v1.DeploymentSpec").expect("a definition");
        let strategy = deployment.at(&["properties", "strategy"]);
        assert_eq!(*strategy.get("default"), json!({}));
        assert_eq!(
            *strategy.get("allOf"),
            json!([{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}])
        );
        assert_eq!(strategy.str_at(&["x-kubernetes-patch-strategy"]), "retainKeys");
        assert!(deployment.at(&["properties", "selector", "default"]).is_null());
        let limits = component("io.k8s.api.core.v1.ResourceRequirements").expect("a definition");
        assert_eq!(
            *limits.at(&["properties", "limits", "additionalProperties"]),
            json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"})
        );
    }

    #[test]
    fn list_items_are_bare_references_and_required_keeps_source_order() {
        let selector =
            component("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement").expect("a definition");
        assert_eq!(*selector.get("required"), json!(["key", "operator"]));
        let attached = component("io.k8s.api.core.v1.AttachedVolume").expect("a definition");
        assert_eq!(*attached.get("required"), json!(["name", "devicePath"]));
        let pod = component("io.k8s.api.core.v1.PodSpec").expect("a definition");
        assert_eq!(
            *pod.at(&["properties", "containers", "items"]),
            json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"})
        );
        assert_eq!(
            *pod.at(&["properties", "nodeSelector", "additionalProperties"]),
            json!({"type": "string"})
        );
    }

    #[test]
    fn query_parameters_are_described() {
        let text = parameter("ListOptions", "labelSelector").unwrap();
        assert!(
            text.starts_with("A selector to restrict the list of returned objects"),
            "{text}"
        );
        assert!(parameter("PodLogOptions", "insecureSkipTLSVerifyBackend").is_some());
        assert_eq!(parameter("ListOptions", "nothing"), None);
        assert_eq!(parameter("Nothing", "labelSelector"), None);
    }

    #[test]
    fn descriptions_list_enum_values() {
        let spec = component("io.k8s.api.core.v1.PodSpec").expect("a definition");
        let policy = spec.at(&["properties", "restartPolicy"]);
        let text = policy.str_at(&["description"]);
        assert!(
            text.ends_with("\n\nPossible enum values:\n - `\"Always\"`\n - `\"Never\"`\n - `\"OnFailure\"`"),
            "{text}"
        );
        assert_eq!(policy.get("enum").items().len(), 3);
        let claim = component("io.k8s.api.core.v1.PersistentVolumeClaimSpec").expect("a definition");
        let modes = claim.at(&["properties", "accessModes"]);
        assert!(!modes.str_at(&["description"]).contains("Possible enum values"));
        assert_eq!(modes.at(&["items", "enum"]).items().len(), 4);
    }

    #[test]
    fn descriptions_are_aligned_with_their_fields() {
        let all = Components::load();
        let pod = all.schema(Dialect::V3, by_name("io.k8s.api.core.v1.Pod").expect("pods"), &[]);
        assert!(
            pod.str_at(&["description"])
                .starts_with("Pod is a collection of containers")
        );
        let last = types().last().expect("some");
        let schema = all.schema(Dialect::V2, last, &[]);
        assert_eq!(
            schema.at(&["properties"]).as_object().map(Map::len),
            Some(last.fields.len())
        );
        assert_eq!(
            all.text.bytes().filter(|b| *b == 0).count(),
            types().iter().map(|t| t.fields.len() + 1).sum::<usize>()
        );
    }

    #[test]
    fn closure_is_transitive_and_terminates_on_recursion() {
        let names = closure(["io.k8s.api.core.v1.Pod", "io.k8s.nothing"]);
        assert!(names.contains(&"io.k8s.apimachinery.pkg.api.resource.Quantity"));
        assert!(names.contains(&"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"));
        assert!(names.is_sorted());
        let crd = closure(["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"]);
        assert!(crd.iter().any(|n| n.ends_with("JSONSchemaPropsOrStringArray")));
    }

    #[test]
    fn delete_options_list_the_documents_group_version() {
        let all = Components::load();
        let options = by_name(EVERYWHERE[0]).expect("delete options");
        let schema = all.schema(Dialect::V3, options, &[("apps", "v1")]);
        assert_eq!(
            *schema.get("x-kubernetes-group-version-kind"),
            json!([{"group": "", "kind": "DeleteOptions", "version": "v1"}, {"group": "apps", "kind": "DeleteOptions", "version": "v1"}])
        );
    }
}
