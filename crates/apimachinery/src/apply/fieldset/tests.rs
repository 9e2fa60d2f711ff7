use super::*;
use crate::json;
use crate::value::Value;
use proptest::prelude::*;

#[test]
fn fields_v1_round_trips() {
    let v = json!({"f:metadata": {"f:labels": {".": {}, "f:a.b/c": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:l": {"i:0": {}}}});
    let s = FieldSet::decode(&v).unwrap();
    assert_eq!(s.encode(), v);
    let mut paths = Vec::new();
    s.for_each(&mut |p| paths.push(p.to_owned()));
    assert_eq!(
        paths,
        [
            ".metadata.labels",
            ".metadata.finalizers[=\"x/y\"]",
            ".metadata.labels.a.b/c",
            ".spec.l[0]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].port"
        ]
    );
    assert!(FieldSet::decode(&json!({"f": {}})).is_err() && FieldSet::decode(&json!({"k:x": {}})).is_err());
    assert!(FieldSet::decode(&json!({"z:new": {}})).unwrap().is_empty());
}

#[test]
fn recursive_difference_removes_descendants() {
    let s = FieldSet::of_fields(&[&["status", "phase"], &["spec"], &["spec", "x"]]);
    assert_eq!(
        s.recursive_difference(&FieldSet::of_fields(&[&["status"]])),
        FieldSet::of_fields(&[&["spec"], &["spec", "x"]])
    );
    assert_eq!(
        s.difference(&FieldSet::of_fields(&[&["spec"]])),
        FieldSet::of_fields(&[&["status", "phase"], &["spec", "x"]])
    );
    assert_eq!(s.leaves(), FieldSet::of_fields(&[&["status", "phase"], &["spec", "x"]]));
}

#[test]
fn neighbours_with_equal_children_share_them() {
    fn shared(set: &FieldSet) -> bool {
        let mut neighbours = set.entries().windows(2);
        set.entries().len() == 3 && neighbours.all(|w| w[0].children.is_same(&w[1].children))
    }
    let items = ["a", "b", "c"].map(|k| (format!("k:{{\"k\":\"{k}\"}}"), json!({".": {}, "f:k": {}, "f:v": {}})));
    let list = Value::Object(items.into_iter().map(|(k, v)| (Str::from(k), v)).collect());
    let set = FieldSet::decode(&list).unwrap();
    assert!(shared(&set));
    assert_eq!(set.encode(), list);
    let other = FieldSet::decode(&list).unwrap();
    assert!(shared(&set.union(&other)) && shared(&set.intersection(&other)) && shared(&set.leaves()));
    let values =
        json!({"k:{\"k\":\"a\"}": {"f:v": {}}, "k:{\"k\":\"b\"}": {"f:v": {}}, "k:{\"k\":\"c\"}": {"f:v": {}}});
    let mut less = set.clone();
    assert!(less.subtract(&FieldSet::decode(&values).unwrap()));
    assert!(shared(&less) && less.members() == 6 && set.members() == 9);
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-c]".prop_map(|s| PathElement::Field(s.into())),
        ("[a-b]", 0i64..3).prop_map(|(k, v)| PathElement::Key(vec![(k.into(), v.into())])),
        "[a-b]".prop_map(|s| PathElement::Value(s.into())),
        (0i64..3).prop_map(PathElement::Index),
    ]
}

fn paths() -> impl Strategy<Value = Vec<Vec<PathElement>>> {
    proptest::collection::vec(proptest::collection::vec(element(), 1..4), 0..12)
}

fn set(paths: &[Vec<PathElement>]) -> FieldSet {
    let mut s = FieldSet::new();
    paths.iter().for_each(|p| s.insert(p));
    s
}

proptest! {
    #[test]
    fn operations_match_a_model_of_path_lists(a in paths(), b in paths()) {
        let (sa, sb) = (set(&a), set(&b));
        for p in a.iter().chain(&b) {
            let (ia, ib) = (a.contains(p), b.contains(p));
            let below = (1..=p.len()).any(|n| b.iter().any(|q| q == &p[..n]));
            prop_assert_eq!(sa.recursive_difference(&sb).has(p), ia && !below);
            prop_assert_eq!(sa.union(&sb).has(p), ia || ib);
            prop_assert_eq!(sa.intersection(&sb).has(p), ia && ib);
            prop_assert_eq!(sa.difference(&sb).has(p), ia && !ib);
        }
        prop_assert_eq!(FieldSet::decode(&sa.encode()).unwrap(), if sa.is_empty() { FieldSet::new() } else { sa.clone() });
        prop_assert!(sa.difference(&sa).is_empty());
        let (mut less, mut more, mut without) = (sa.clone(), sa.clone(), sa.clone());
        prop_assert_eq!(less.subtract(&sb), less != sa);
        more.absorb(sb.clone());
        without.exclude(&sb);
        prop_assert_eq!((less, more, without), (sa.difference(&sb), sa.union(&sb), sa.recursive_difference(&sb)));
        let singly = a.iter().chain(&b).map(|p| set(std::slice::from_ref(p)));
        prop_assert_eq!(FieldSet::union_of(singly), sa.union(&sb));
        prop_assert_eq!(sa.union(&sb), sb.union(&sa));
    }
}
