use super::*;
use torana_apimachinery::json as tree;

fn text(v: &Value) -> String {
    String::from_utf8(to_vec(v)).unwrap()
}

#[test]
fn members_of_built_in_kinds_are_in_the_order_of_the_structs() {
    let pod = tree!({
        "status": {"phase": "Running", "conditions": [{"status": "True", "type": "Ready"}]},
        "spec": {
            "containers": [{"image": "i", "env": [{"value": "v", "name": "E"}], "name": "c", "args": ["b", "a"]}],
            "volumes": [{"emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}, "name": "v"}],
            "nodeSelector": {"b": "1", "a": "2"},
        },
        "metadata": {
            "managedFields": [{"fieldsV1": {"f:spec": {"f:b": {}, "f:a": {}}}, "manager": "m", "apiVersion": "v1"}],
            "labels": {"b": "1", "a": "2"}, "creationTimestamp": "t", "uid": "u", "namespace": "ns", "name": "n",
        },
        "apiVersion": "v1", "kind": "Pod",
    });
    assert_eq!(
        text(&pod),
        concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","namespace":"ns","uid":"u","creationTimestamp":"t","#,
            r#""labels":{"a":"2","b":"1"},"managedFields":[{"manager":"m","apiVersion":"v1","#,
            r#""fieldsV1":{"f:spec":{"f:a":{},"f:b":{}}}}]},"#,
            r#""spec":{"volumes":[{"name":"v","emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}}],"#,
            r#""containers":[{"name":"c","image":"i","args":["b","a"],"env":[{"name":"E","value":"v"}]}],"#,
            r#""nodeSelector":{"a":"2","b":"1"}},"#,
            r#""status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#,
        )
    );
}

#[test]
fn status_discovery_and_tables_are_in_the_order_of_the_structs() {
    for want in [
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"NotFound","details":{"name":"a","kind":"pods"},"code":404}"#,
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"a"}]}"#,
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#,
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"shortNames":["po"]}]}"#,
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["get"]}],"freshness":"Current"}]}]}"#,
        r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1","continue":"c"},"columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"d","priority":0}],"rows":[{"cells":["a"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","creationTimestamp":null}}}]}"#,
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"},"spec":{}}]}"#,
    ] {
        let document = json::decode(want.as_bytes()).unwrap();
        assert_eq!(text(&document), want);
        assert_eq!(json::decode(&to_vec_pretty(&document)), Ok(document));
    }
}

#[test]
fn custom_resources_are_sorted_and_undeclared_members_come_last() {
    let custom = r#"{"apiVersion":"example.com/v1","kind":"Pod","metadata":{"creationTimestamp":null,"name":"a"},"spec":{"b":1}}"#;
    assert_eq!(text(&json::decode(custom.as_bytes()).unwrap()), custom);
    let unknown = tree!({"apiVersion": "v1", "kind": "Namespace", "another": {"b": 1, "a": 2}, "spec": {"x": 1, "finalizers": []}});
    assert_eq!(
        text(&unknown),
        r#"{"kind":"Namespace","apiVersion":"v1","spec":{"finalizers":[],"x":1},"another":{"a":2,"b":1}}"#
    );
}

#[test]
fn values_that_do_not_match_their_type_are_written_as_they_are() {
    for odd in [
        tree!({"apiVersion": "v1", "kind": "Pod", "metadata": ["x", {"b": 1, "a": 2}], "spec": 7}),
        tree!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": {"name": {"b": 1}}, "nodeSelector": [{"a": 1}]}}),
        tree!(["kind", {"kind": "Pod"}]),
    ] {
        assert_eq!(json::decode(&to_vec(&odd)), Ok(odd));
    }
}
