use super::*;

#[test]
fn names_fields_and_kinds_are_sorted() {
    assert!(types().is_sorted_by(|a, b| a.name < b.name));
    assert!(types().iter().all(|t| t.fields.is_sorted_by(|a, b| a.name < b.name)));
    assert!(table::GVKS.is_sorted_by(|a, b| (a.0, a.1, a.2) < (b.0, b.1, b.2)));
}

#[test]
fn a_kind_and_its_fields_are_found() {
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
fn corrections_of_the_source_hold() {
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
    assert_eq!((claim.map, claim.map_said), (MapType::Granular, true));
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
