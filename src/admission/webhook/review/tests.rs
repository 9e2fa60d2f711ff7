use super::*;
use crate::admission::Operation;
use crate::admission::testing::request;
use crate::json;
use crate::request::UserInfo;
use proptest::prelude::*;
use std::sync::Arc;

fn sent(version: ReviewVersion, attributes: &Attributes, object: &Value) -> Value {
    let target = ServedKind {
        resource: GroupVersionResource::new("events.k8s.io", "v1", "events"),
        kind: GroupVersionKind::new("events.k8s.io", "v1", "Event"),
    };
    let review = Review {
        version,
        uid: "u-1",
        attributes,
        target: &target,
        object: &json::to_vec(object),
        old_object: b"null",
    };
    json::decode(&review.encode()).unwrap()
}

#[test]
fn reviews_have_all_members_and_omit_empty_names() {
    let mut write = request(Operation::Create, "", "events", "");
    write.kind = GroupVersionKind::new("", "v1", "Event");
    write.user = Arc::new(UserInfo {
        uid: "42".to_owned(),
        extra: [("k".to_owned(), vec!["a".to_owned()])].into(),
        ..UserInfo::system("admin", &["admins"])
    });
    write.options = Arc::new(json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
    let review = sent(ReviewVersion::V1, &write, &json!({"a": 1}));
    assert_eq!(
        review,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u-1",
            "kind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"},
            "resource": {"group": "events.k8s.io", "version": "v1", "resource": "events"},
            "requestKind": {"group": "", "version": "v1", "kind": "Event"},
            "requestResource": {"group": "", "version": "v1", "resource": "events"},
            "namespace": "ns",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "uid": "42", "groups": ["admins"], "extra": {"k": ["a"]}},
            "object": {"a": 1},
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }})
    );
    let connect = Attributes {
        operation: Operation::Connect,
        subresource: "exec".to_owned(),
        name: "p".to_owned(),
        options: Arc::new(Value::Null),
        ..write
    };
    let review = sent(ReviewVersion::V1Beta1, &connect, &Value::Null);
    let sent = review.get("request");
    assert_eq!(review.str_at(&["apiVersion"]), "admission.k8s.io/v1beta1");
    let texts = ["subResource", "requestSubResource", "name"].map(|key| sent.str_at(&[key]));
    assert_eq!(texts, ["exec", "exec", "p"]);
    assert!(sent.as_object().unwrap().contains_key("options") && sent.get("options").is_null());
}

fn read(version: ReviewVersion, mutating: bool, review: &Value) -> Result<ReviewResponse, Unacceptable> {
    answer(version, "u", mutating, &json::to_vec(review))
}

/// A v1 review with this response.
fn v1(response: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[test]
fn unacceptable_answers_are_worded_as_upstream() {
    let invalid = |mutating, review: Value| match read(ReviewVersion::V1, mutating, &review) {
        Err(Unacceptable::Invalid(e)) => e.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        invalid(
            true,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})
        ),
        "webhook response was absent"
    );
    assert_eq!(
        invalid(true, v1(json!({"uid": "x"}))),
        "expected response.uid=\"u\", got \"x\""
    );
    assert_eq!(
        invalid(true, json!({"response": {"uid": "u"}})),
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    );
    for (mutating, response, why) in [
        (
            true,
            json!({"uid": "u", "patch": "W10="}),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            true,
            json!({"uid": "u", "patchType": "JSONPatch"}),
            "webhook returned response.patchType but not response.patch",
        ),
        (
            true,
            json!({"uid": "u", "patch": "W10=", "patchType": ""}),
            "webhook returned invalid response.patchType of \"\"",
        ),
        (
            false,
            json!({"uid": "u", "patch": "W10="}),
            "validating webhook may not return response.patch",
        ),
        (
            false,
            json!({"uid": "u", "patchType": "JSONPatch"}),
            "validating webhook may not return response.patchType",
        ),
    ] {
        assert_eq!(invalid(mutating, v1(response)), why);
    }
    let undecodable = |review: Value| match read(ReviewVersion::V1, true, &review) {
        Err(Unacceptable::Undecodable(e)) => e.to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        undecodable(json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {}})),
        "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
    );
    assert_eq!(
        undecodable(v1(json!({"uid": "u", "allowed": "yes"}))),
        "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"
    );
    for wrong in [
        json!([]),
        v1(json!(1)),
        v1(json!({"warnings": [1]})),
        v1(json!({"patch": "?"})),
        v1(json!({"status": "no"})),
    ] {
        assert!(
            matches!(read(ReviewVersion::V1, true, &wrong), Err(Unacceptable::Undecodable(_))),
            "{wrong:?}"
        );
    }
}

#[test]
fn answers_of_v1beta1_need_no_type_and_their_patches_no_patch_type() {
    let review = json!({"response": {"allowed": true, "patch": "W10="}});
    let mutating = read(ReviewVersion::V1Beta1, true, &review).unwrap();
    assert_eq!(
        (mutating.patch.as_slice(), mutating.patch_type.as_str()),
        (&b"[]"[..], "JSONPatch")
    );
    let validating = read(ReviewVersion::V1Beta1, false, &review).unwrap();
    assert_eq!((validating.allowed, validating.patch.len()), (true, 0));
}

#[test]
fn warnings_annotations_and_status_are_read() {
    let read = read(
        ReviewVersion::V1,
        false,
        &v1(
            json!({"uid": "u", "allowed": false, "warnings": ["w"], "auditAnnotations": {"a": "1"},
            "status": {"code": 418, "reason": "Teapot", "unknown": 1}}),
        ),
    );
    let answer = read.unwrap();
    assert_eq!((answer.allowed, answer.warnings), (false, vec!["w".to_owned()]));
    assert_eq!(answer.audit_annotations, [("a".to_owned(), "1".to_owned())]);
    let status = answer.status.unwrap();
    assert_eq!(
        (status.str_at(&["reason"]), status.get("unknown")),
        ("Teapot", &Value::Null)
    );
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(body in ".{0,200}", mutating in any::<bool>()) {
        let _ = answer(ReviewVersion::V1, "u", mutating, body.as_bytes());
        let wrapped = format!("{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{body}}}");
        let _ = answer(ReviewVersion::V1, "u", mutating, wrapped.as_bytes());
    }
}

#[test]
fn patches_are_read_in_every_form_that_gos_decoder_accepts() {
    let patched = |patch: Value| v1(json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": patch}));
    // `[]` with a line break, as some encoders write base64, and as a list of numbers, as kube-rs does.
    for form in [Value::from("W10="), Value::from("W1\n0=\r\n"), json!([91, 93])] {
        let answer = read(ReviewVersion::V1, true, &patched(form.clone())).unwrap();
        assert_eq!(answer.patch, b"[]", "{form:?}");
    }
    let refused = |patch: Value| match read(ReviewVersion::V1, true, &patched(patch)) {
        Err(Unacceptable::Undecodable(e)) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let field = "into Go struct field AdmissionResponse.response.patch of type uint8";
    assert_eq!(
        refused(json!([1, 256])),
        format!("json: cannot unmarshal number 256 {field}")
    );
    assert_eq!(refused(json!(["a"])), format!("json: cannot unmarshal string {field}"));
    assert_eq!(refused(Value::from("W1?=")), "illegal base64 data at input byte 2");
}
