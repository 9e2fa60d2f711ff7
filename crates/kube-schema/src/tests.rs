use super::*;

#[test]
fn definitions_fields_and_gvks_are_sorted() {
    assert!(types().is_sorted_by(|a, b| a.name < b.name));
    assert!(types().iter().all(|t| t.fields.is_sorted_by(|a, b| a.name < b.name)));
    assert!(table::GVKS.is_sorted_by(|a, b| (a.0, a.1, a.2) < (b.0, b.1, b.2)));
}

#[test]
fn kinds_and_fields_are_found_by_exact_name() {
    let pod = by_gvk("", "v1", "Pod").expect("pods");
    assert_eq!(pod.name, "io.k8s.api.core.v1.Pod");
    let Some(Ty::Struct(spec)) = pod.field("spec").map(|f| f.ty) else {
        panic!("no spec")
    };
    let containers = spec.get().field("containers").expect("containers");
    assert_eq!(containers.list, ListType::Map(&["name"]));
    assert_eq!(
        (containers.patch_strategy, containers.merge_key),
        (PatchStrategy::Merge, Some("name"))
    );
    assert!(containers.required);
    assert!(by_gvk("", "v1", "Pods").is_none());
    assert!(pod.field("Spec").is_none());
}

#[test]
fn corrections_to_the_openapi_source_are_applied() {
    let ports = by_name("io.k8s.api.core.v1.Container")
        .and_then(|t| t.field("ports"))
        .expect("ports");
    assert_eq!(ports.list, ListType::Map(&["containerPort", "protocol"]));
    assert_eq!(ports.merge_key, Some("containerPort"));
    let selector = by_name("io.k8s.api.core.v1.ServiceSpec")
        .and_then(|t| t.field("selector"))
        .expect("selector");
    assert_eq!(selector.map, MapType::Atomic);
    let claim = by_name("io.k8s.api.core.v1.PersistentVolumeSpec")
        .and_then(|t| t.field("claimRef"))
        .expect("claimRef");
    assert_eq!((claim.map, claim.map_type_explicit), (MapType::Granular, true));
    let claims = by_name("io.k8s.api.core.v1.ResourceRequirements")
        .and_then(|t| t.field("claims"))
        .expect("claims");
    assert_eq!(
        (claims.list, claims.patch_strategy),
        (ListType::Map(&["name"]), PatchStrategy::None)
    );
    let protocol = by_name("io.k8s.api.core.v1.ServicePort")
        .and_then(|t| t.field("protocol"))
        .expect("protocol");
    assert_eq!(protocol.default, Some("\"TCP\""));
}

#[test]
fn protobuf_paths_include_embedded_messages() {
    let volume = by_name("io.k8s.api.core.v1.Volume").expect("volumes");
    let secret = volume.field("secret").expect("a volume source");
    assert_eq!((secret.embedded_in, secret.tag), ([2, 0], 6));
    let name = volume.field("name").expect("a name");
    assert_eq!((name.embedded_in, name.tag), ([0, 0], 1));
    let rule = by_name("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations").expect("rules");
    assert_eq!(
        rule.field("apiGroups").map(|f| (f.embedded_in, f.tag)),
        Some(([2, 2], 1))
    );
    assert_eq!(
        by_gvk("", "v1", "Pod").and_then(|t| t.field("kind")).map(|f| f.tag),
        Some(0)
    );
}

#[test]
fn the_table_stays_below_512_kib() {
    let rows: usize = types().iter().map(|t| t.fields.len()).sum();
    assert!(
        rows * size_of::<Field>() + size_of_val(types()) < 512 * 1024,
        "{} rows of {}",
        rows,
        size_of::<Field>()
    );
}

#[test]
fn fields_added_by_corrections_work_in_every_codec_and_schema() {
    use torana_apimachinery::apply::{ApplySchema, PathElement, typed::to_field_set};
    use torana_apimachinery::json;

    let corrections = include_str!("../../../tools/schema-gen/corrections.txt");
    let lines: Vec<&str> = corrections.lines().filter_map(|l| l.strip_prefix("field ")).collect();
    assert!(lines.len() > 50);
    let all = openapi::Components::load();
    for line in lines {
        let (path, ty) = line.split_once(' ').expect("a path and a type");
        let (definition, name) = path.rsplit_once('.').expect("definition.field");
        let def = by_name(&format!("io.k8s.{definition}")).expect("a definition");
        let value = match ty.split(' ').next().expect("a type") {
            "string" => json!("x"),
            "byte" => json!("eA=="),
            "boolean" => json!(true),
            "int64" => json!(7),
            "[]string" => json!(["x"]),
            list if list.starts_with("[]") => json!([{}]),
            _ => json!({}),
        };
        let mut object = torana_apimachinery::Value::object();
        object.set(&[name], value);
        let findings = decode::normalize(def, &mut object).expect("it has the right type");
        assert_eq!(findings, [""; 0], "{path}");
        let field = def.field(name).expect("a row");
        if field.tag != 0 {
            let mut bytes = Vec::new();
            protobuf::encode_message(def, &object, &mut bytes);
            let mut again = protobuf::decode_message(def, &bytes).expect("what we write, we read");
            decode::normalize(def, &mut again).expect("it has the right type");
            assert_eq!(again, object, "{path}");
        }
        let schema = apply_schema::ApplyType::Root(def);
        assert!(schema.member(name).is_some_and(|m| m.declared), "{path}");
        let owned = to_field_set(&object, schema);
        assert!(owned.get(&PathElement::Field(name.into())).is_some(), "{path}");
        let described = all.schema(openapi::Dialect::V3, def, &[]);
        assert!(described.at(&["properties", name]).as_object().is_some(), "{path}");
    }
}
