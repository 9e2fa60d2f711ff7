use super::support::serve;
use crate::apimachinery::object::ObjectView;

const CMS: &str = "/api/v1/namespaces/ns/configmaps";

#[tokio::test]
async fn objects_are_created_read_updated_and_deleted() {
    let s = serve().await;
    let made = s.config_map("a", "1").await.json();
    assert_eq!(
        (made.api_version(), made.kind(), made.namespace()),
        ("v1", "ConfigMap", "ns")
    );
    assert!(!made.uid().is_empty() && !made.resource_version().is_empty());

    let got = s.get(&format!("{CMS}/a")).await;
    assert!(got.text.ends_with("}\n"));
    assert_eq!(got.json(), made);

    let mut changed = made.clone();
    changed.set(&["data", "k"], "w");
    let put = s
        .put(
            &format!("{CMS}/a"),
            &crate::apimachinery::codec::json::to_string(&changed),
        )
        .await;
    assert_eq!(put.code, 200, "{}", put.text);
    let stale = s
        .put(
            &format!("{CMS}/a"),
            &crate::apimachinery::codec::json::to_string(&changed),
        )
        .await;
    assert_eq!((stale.code, stale.json().str_at(&["reason"])), (409, "Conflict"));

    let deleted = s.delete(&format!("{CMS}/a"), "").await;
    assert_eq!(deleted.json().str_at(&["details", "kind"]), "configmaps");
    assert_eq!(s.get(&format!("{CMS}/a")).await.message(), "configmaps \"a\" not found");
}

#[tokio::test]
async fn no_op_writes_keep_the_resource_version() {
    let s = serve().await;
    let made = s.config_map("a", "1").await.json();
    let same = s
        .patch(&format!("{CMS}/a"), "merge-patch+json", r#"{"data":{"k":"v"}}"#)
        .await;
    assert_eq!(same.json().resource_version(), made.resource_version());
    let other = s
        .patch(&format!("{CMS}/a"), "merge-patch+json", r#"{"data":{"k":null}}"#)
        .await;
    assert_eq!(other.code, 200, "{}", other.text);
    assert_ne!(other.json().resource_version(), made.resource_version());
    assert!(other.json().get("data").is_null());
}

#[tokio::test]
async fn errors_match_upstream() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let with_version = r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#;
    let made = s.post(CMS, with_version).await;
    assert_eq!(
        (made.code, made.message().as_str()),
        (500, "resourceVersion should not be set on objects to be created")
    );
    let dry = s.post(&format!("{CMS}?dryRun=All"), with_version).await;
    assert_eq!((dry.code, dry.json().resource_version()), (201, "5"));
    for version in ["0", "x"] {
        let body = format!(r#"{{"metadata":{{"name":"none-{version}","resourceVersion":"{version}"}}}}"#);
        let made = s.post(CMS, &body).await;
        assert_eq!(made.code, 201, "{}", made.text);
        assert_ne!(made.json().resource_version(), version);
    }
    let again = s.post(CMS, r#"{"metadata":{"name":"a"}}"#).await;
    assert_eq!(
        (again.code, again.message().as_str()),
        (409, "configmaps \"a\" already exists")
    );
    let nameless = s.post(CMS, "{}").await;
    assert_eq!(
        nameless.message(),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
    let nowhere = s
        .post("/api/v1/namespaces/none/configmaps", r#"{"metadata":{"name":"a"}}"#)
        .await;
    assert_eq!(
        (nowhere.code, nowhere.message().as_str()),
        (404, "namespaces \"none\" not found")
    );
    let number = s
        .put(
            &format!("{CMS}/a"),
            r#"{"metadata":{"name":"a","resourceVersion":"x"}}"#,
        )
        .await;
    assert_eq!(
        (number.code, number.message().as_str()),
        (500, "strconv.ParseUint: parsing \"x\": invalid syntax")
    );
    let other_name = s.put(&format!("{CMS}/a"), r#"{"metadata":{"name":"b"}}"#).await;
    assert_eq!(
        other_name.message(),
        "the name of the object (b) does not match the name on the URL (a)"
    );
    let wrong_type = s.post(CMS, r#"{"metadata":{"name":"z"},"data":{"a":1}}"#).await;
    assert_eq!(wrong_type.code, 400);
    assert!(
        wrong_type
            .message()
            .starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: ")
    );
    let strict = s
        .post(
            &format!("{CMS}?fieldValidation=Strict"),
            r#"{"metadata":{"name":"z"},"bogus":1}"#,
        )
        .await;
    assert_eq!(
        strict.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"bogus\""
    );
    let immutable = s
        .patch(&format!("{CMS}/a"), "merge-patch+json", r#"{"metadata":{"uid":"u"}}"#)
        .await;
    assert_eq!(immutable.code, 422);
    let huge = format!(r#"{{"data":{{"a":"{}"}}}}"#, "x".repeat(3_200_000));
    let huge = s.post(CMS, &huge).await;
    assert_eq!(
        (huge.code, huge.message().as_str()),
        (413, "Request entity too large: limit is 3145728")
    );
}

#[tokio::test]
async fn finalizers_hold_deleted_objects() {
    let s = serve().await;
    let body = r#"{"metadata":{"name":"a","finalizers":["x.io/y"]}}"#;
    assert_eq!(s.post(CMS, body).await.code, 201);
    let marked = s.delete(&format!("{CMS}/a"), "").await;
    assert!(marked.json().is_being_deleted(), "{}", marked.text);
    let more = s
        .patch(
            &format!("{CMS}/a"),
            "merge-patch+json",
            r#"{"metadata":{"finalizers":["x.io/y","z.io/z"]}}"#,
        )
        .await;
    assert_eq!(more.code, 422);
    let last = s
        .patch(
            &format!("{CMS}/a"),
            "merge-patch+json",
            r#"{"metadata":{"finalizers":null}}"#,
        )
        .await;
    assert_eq!(last.json().resource_version(), marked.json().resource_version());
    assert_eq!(s.get(&format!("{CMS}/a")).await.code, 404);
}

#[tokio::test]
async fn delete_honours_propagation_and_preconditions() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let stale = s.delete(&format!("{CMS}/a"), r#"{"preconditions":{"uid":"x"}}"#).await;
    assert_eq!(stale.json().str_at(&["details", "kind"]), "ConfigMap");
    let dry = s.delete(&format!("{CMS}/a?dryRun=All"), "").await;
    assert_eq!(dry.json().str_at(&["status"]), "Success");
    let held = s.delete(&format!("{CMS}/a?propagationPolicy=Foreground"), "").await;
    assert_eq!(held.json().finalizers(), ["foregroundDeletion"]);
    let go = s.delete(&format!("{CMS}/a?propagationPolicy=Background"), "").await;
    assert_eq!(go.json().kind(), "Status", "{}", go.text);
    assert_eq!(s.get(&format!("{CMS}/a")).await.code, 404);
}

#[tokio::test]
async fn generate_name_is_stored_and_dry_run_is_not() {
    let s = serve().await;
    let made = s.post(CMS, r#"{"metadata":{"generateName":"g-"}}"#).await.json();
    assert_eq!(made.name().len(), 7);
    let dry = s
        .post(&format!("{CMS}?dryRun=All"), r#"{"metadata":{"name":"d"}}"#)
        .await;
    assert_eq!((dry.code, dry.json().resource_version()), (201, ""));
    assert_eq!(s.get(&format!("{CMS}/d")).await.code, 404);
}

#[tokio::test]
async fn all_patch_types_are_dispatched() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let path = format!("{CMS}/a");
    let json = s
        .patch(
            &path,
            "json-patch+json",
            r#"[{"op":"add","path":"/data/j","value":"1"}]"#,
        )
        .await;
    assert_eq!(json.json().str_at(&["data", "j"]), "1", "{}", json.text);
    let strategic = s
        .patch(&path, "strategic-merge-patch+json", r#"{"data":{"s":"1"}}"#)
        .await;
    assert_eq!(strategic.json().str_at(&["data", "s"]), "1");
    let applied = s
        .patch(
            &format!("{CMS}/new?fieldManager=m"),
            "apply-patch+yaml",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}"#,
        )
        .await;
    assert_eq!(applied.code, 201, "{}", applied.text);
    let absent = s.patch(&format!("{CMS}/none"), "merge-patch+json", "{}").await;
    assert_eq!(absent.code, 404);
    let wrong = s.patch(&path, "json", "{}").await;
    assert_eq!(
        (wrong.code, wrong.message().as_str()),
        (415, "415: Unsupported Media Type")
    );
    let versionless = s.patch(&path, "merge-patch+json", r#"{"apiVersion":null}"#).await;
    assert_eq!(versionless.code, 400);
    assert!(versionless.text.contains("undeterminable: name must be provided"));
    let strict = format!("{path}?fieldValidation=Strict");
    let versionless = s.patch(&strict, "merge-patch+json", r#"{"apiVersion":""}"#).await;
    assert_eq!(versionless.code, 422);
    let unknown = "strict decoding error: unknown field \"data\", unknown field \"metadata\"";
    assert!(versionless.message().ends_with(unknown), "{}", versionless.text);
    let foreign = r#"{"apiVersion":"","kind":"X"}"#;
    let foreign = s.patch(&path, "merge-patch+json", foreign).await.message();
    let none = "no kind \"X\" is registered for the internal version of group \"\" in scheme ";
    assert!(foreign.contains(none), "{foreign}");
    let number = s.patch(&path, "merge-patch+json", r#"{"kind":1}"#).await.message();
    let why = "json parse error: json: cannot unmarshal number into Go struct field .kind of type string";
    assert!(number.ends_with(why), "{number}");
    let kindless = s.patch(&path, "merge-patch+json", r#"{"kind":null}"#).await;
    assert_eq!(kindless.json().kind(), "ConfigMap");
    let kind = s.patch(&path, "merge-patch+json", r#"{"data":{"k":5}}"#).await;
    assert_eq!(kind.code, 422);
    assert!(
        kind.message().starts_with(" \"\" is invalid: patch: Invalid value: "),
        "{}",
        kind.text
    );
}

#[tokio::test]
async fn a_patch_to_another_kind_does_not_convert() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let path = format!("{CMS}/a");
    let pod = s.patch(&path, "merge-patch+json", r#"{"kind":"Pod"}"#).await;
    assert_eq!(pod.code, 422);
    let why = "converting (v1.Pod) to (core.ConfigMap): unknown conversion";
    assert!(pod.message().ends_with(why), "{}", pod.text);
}

#[tokio::test]
async fn unknown_fields_precede_the_wrong_version() {
    let s = serve().await;
    let body = r#"{"kind":"ConfigMap","apiVersion":"__internal","metadata":{"name":"a"},"data":{}}"#;
    let strict = s.post(&format!("{CMS}?fieldValidation=Strict"), body).await;
    assert_eq!(strict.code, 400);
    assert_eq!(
        strict.message(),
        "ConfigMap in version \"__internal\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
         \"metadata\", unknown field \"data\""
    );
    let ignored = s.post(&format!("{CMS}?fieldValidation=Ignore"), body).await;
    let why = "the API version in the data (__internal) does not match the expected API version (v1)";
    assert_eq!((ignored.code, ignored.message().as_str()), (400, why));
}

#[tokio::test]
async fn a_refused_strategic_merge_patch_is_shown_as_the_merge_left_it() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let body = r#"{"metadata":{"annotations":{"a":null,"b":5}}}"#;
    let refused = s.patch(&format!("{CMS}/a"), "strategic-merge-patch+json", body).await;
    assert_eq!(refused.code, 422);
    let why = "\"map[metadata:map[annotations:map[b:5]]]\": cannot convert int64 to string";
    assert!(refused.message().ends_with(why), "{}", refused.text);
}

#[tokio::test]
async fn directives_count_in_strategic_merge_patches_of_scales() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let body = r#"{"metadata":{"$patch":"explode"}}"#;
    let path = format!("{CMS}/a/scale");
    let refused = s.patch(&path, "strategic-merge-patch+json", body).await;
    let why = "unknown patch type: explode in map: map[$patch:explode]";
    assert_eq!((refused.code, refused.message().as_str()), (500, why));
}

#[tokio::test]
async fn a_custom_resource_without_a_kind_gets_its_decoders_message() {
    let s = serve().await;
    let body = r#"{"apiVersion":"v1","kind":""}"#;
    for (validation, start) in [
        (
            "Strict",
            "the object provided is unrecognized (must be of type ConfigMap): ",
        ),
        (
            "Ignore",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ",
        ),
    ] {
        let path = format!("/api/v1/namespaces/ns/customs?fieldValidation={validation}");
        let refused = s.post(&path, body).await.message();
        let why = format!("{start}Object 'Kind' is missing in '{body}'");
        assert!(refused.starts_with(&why), "{refused}");
    }
}

#[tokio::test]
async fn strategic_merge_patches_of_custom_resources_are_refused_before_decoding() {
    let s = serve().await;
    for body in ["{", "[]", r#"{"data":{}}"#] {
        let path = "/api/v1/namespaces/ns/customs/absent";
        let refused = s.patch(path, "strategic-merge-patch+json", body).await;
        assert_eq!(refused.code, 415, "{}", refused.text);
        assert!(
            refused
                .message()
                .ends_with("application/merge-patch+json, application/apply-patch+yaml")
        );
    }
}

#[tokio::test]
async fn undecodable_scales_of_custom_resources_report_an_unregistered_type() {
    let s = serve().await;
    for body in [
        r#"{"spec":{"replicas":"x"}}"#,
        r#"{"apiVersion":5}"#,
        r#"{"kind":"X"}"#,
        "{",
    ] {
        let refused = s.put("/api/v1/namespaces/ns/customs/a/scale", body).await;
        assert_eq!(refused.code, 400, "{}", refused.text);
        let start = "no kind is registered for the type v1.Scale in scheme ";
        assert!(refused.message().starts_with(start), "{}", refused.text);
    }
}

#[tokio::test]
async fn patched_scales_of_custom_resources_have_a_scheme_of_their_own() {
    let s = serve().await;
    let customs = "/api/v1/namespaces/ns/customs";
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    assert_eq!(s.post(customs, body).await.code, 201);
    let scale = format!("{customs}/a/scale");
    let refused = s.patch(&scale, "merge-patch+json", r#"{"kind":"X"}"#).await;
    let why = "no kind \"X\" is registered for version \"v1\" in scheme \"k8s.io/client-go/scale/util.go:146\"";
    assert_eq!(refused.code, 422, "{}", refused.text);
    assert!(refused.message().ends_with(why), "{}", refused.text);
}

#[tokio::test]
async fn delete_options_are_checked_before_the_resource_version() {
    let s = serve().await;
    let number = s.delete(&format!("{CMS}/a"), r#"{"gracePeriodSeconds":1.5}"#).await;
    assert_eq!(
        number.message(),
        "json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
    );
    let all = format!("{CMS}?resourceVersion=x");
    let kind = s.delete(&all, r#"{"kind":"Foo"}"#).await.message();
    assert!(kind.starts_with("no kind \"Foo\" is registered"), "{kind}");
    let version = s.delete(&all, "").await.message();
    assert!(version.contains("\"x\""), "{version}");
}

#[tokio::test]
async fn failed_preconditions_of_dry_runs_name_keys_without_the_storage_prefix() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let put = |query: &'static str| {
        let path = format!("{CMS}/a{query}");
        let s = &s;
        async move { s.put(&path, r#"{"metadata":{"name":"a","uid":"u"}}"#).await.message() }
    };
    let (stored, dry) = (put("").await, put("?dryRun=All").await);
    assert!(stored.contains("Key: /registry/configmaps/ns/a, "), "{stored}");
    assert!(dry.contains("Key: /configmaps/ns/a, "), "{dry}");
}

#[tokio::test]
async fn status_subresource_updates_only_status() {
    let s = serve().await;
    let path = "/api/v1/namespaces/ns/status";
    let done = s
        .patch(
            path,
            "merge-patch+json",
            r#"{"status":{"phase":"Active"},"metadata":{"labels":{"x":"y"}}}"#,
        )
        .await;
    assert_eq!(done.json().str_at(&["status", "phase"]), "Active", "{}", done.text);
    assert_eq!(done.json().label("x"), None);
}

#[tokio::test]
async fn delete_collection_honours_selectors() {
    let s = serve().await;
    s.config_map("a", "1").await;
    s.config_map("b", "2").await;
    let gone = s.delete(&format!("{CMS}?labelSelector=l%3D1"), "").await.json();
    assert_eq!(gone.get("items").items().len(), 1);
    let left = s.get(CMS).await.json();
    assert_eq!(left.get("items").items()[0].name(), "b");
}

#[tokio::test]
async fn yaml_bodies_and_responses_are_supported() {
    let s = serve().await;
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let made = s
        .send("POST", CMS, &yaml, "metadata: {name: y1}\ndata:\n  a: '0777'\n")
        .await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(made.headers["content-type"], "application/yaml");
    assert!(made.text.contains("a: \"0777\""), "{}", made.text);
    let twice = "metadata: {name: y2}\ndata:\n  a: '1'\n  a: '2'\n";
    let strict = s
        .send("POST", &format!("{CMS}?fieldValidation=Strict"), &yaml[..1], twice)
        .await;
    assert_eq!(
        strict.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: error converting YAML \
         to JSON: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map"
    );
}

#[tokio::test]
async fn concurrent_patches_are_all_applied() {
    let s = serve().await;
    s.config_map("a", "1").await;
    let path = format!("{CMS}/a");
    let bodies: Vec<String> = (0..16).map(|i| format!(r#"{{"data":{{"k{i}":"v"}}}}"#)).collect();
    let all = bodies.iter().map(|b| s.patch(&path, "merge-patch+json", b));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.code, 200, "{}", answer.text);
    }
    let data = s.get(&path).await.json();
    assert_eq!(
        data.get("data").as_object().map_or(0, crate::apimachinery::Map::len),
        17
    );
}

#[tokio::test]
async fn oversized_objects_are_stored_without_managed_fields() {
    let s = serve().await;
    let with_keys = |n: usize| {
        let data: Vec<String> = (0..n).map(|i| format!("\"k{i:06}\":\"\"")).collect();
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{{}}}}}"#,
            data.join(",")
        )
    };
    let made = s.post(CMS, &with_keys(70_000)).await;
    assert_eq!(made.code, 201, "{}", made.message());
    assert!(made.json().at(&["metadata", "managedFields"]).is_null());
    let put = s.put(&format!("{CMS}/big"), &with_keys(71_000)).await;
    assert_eq!(put.code, 200, "{}", put.message());

    let refused = s.put(&format!("{CMS}/big"), &with_keys(130_000)).await;
    assert_eq!(
        (refused.code, refused.message().as_str()),
        (500, "etcdserver: request is too large")
    );
}
