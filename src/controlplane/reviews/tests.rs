use super::*;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::authn::{AuthenticationError, PresentedToken, TokenUser, WithServerAudiences};
use crate::authz::PrivilegedGroups;
use crate::json;
use crate::registry::resource::CreateHandler;
use crate::registry::strategy::Context;
use crate::request::UserInfo;
use async_trait::async_trait;

struct One;

#[async_trait]
impl TokenAuthenticator for One {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> std::result::Result<Option<TokenUser>, AuthenticationError> {
        Ok((presented.token == "limitedtoken").then(|| {
            Arc::new(UserInfo {
                name: "limited-user".into(),
                uid: "limited-uid".into(),
                groups: vec!["parity-limited".into()],
                ..UserInfo::default()
            })
            .into()
        }))
    }
}

fn review_dependencies() -> ReviewDependencies {
    ReviewDependencies {
        tokens: Arc::new(WithServerAudiences::new(
            One,
            vec!["https://kubernetes.default.svc".into()],
        )),
        anonymous: true,
        authorizer: Arc::new(PrivilegedGroups::masters()),
        roles: crate::authz::Rbac::fixed(crate::authz::rbac::Index::default()),
        audiences: vec!["https://kubernetes.default.svc".into()],
    }
}

async fn token(spec: Value) -> Result<Value> {
    token_with_status(spec, Value::Null).await
}

async fn token_with_status(spec: Value, status: Value) -> Result<Value> {
    let mut v = json!({"kind": "TokenReview"});
    v.set(&["spec"], spec);
    v.set(&["status"], status);
    let answer = TokenReview(review_dependencies())
        .answer(&Context::system(""), v)
        .await?;
    Ok(answer.get("status").clone())
}

#[tokio::test]
async fn token_reviews_match_upstream() {
    let known = json!({"audiences": ["https://kubernetes.default.svc"], "authenticated": true,
        "user": {"groups": ["parity-limited", "system:authenticated"], "uid": "limited-uid", "username": "limited-user"}});
    assert_eq!(token(json!({"token": "limitedtoken"})).await.unwrap(), known);
    let two = json!({"token": "limitedtoken", "audiences": ["https://kubernetes.default.svc", "x"]});
    assert_eq!(token(two).await.unwrap(), known);
    let unknown = json!({"error": "invalid bearer token", "user": {}});
    assert_eq!(token(json!({"token": "bogus"})).await.unwrap(), unknown);
    assert_eq!(
        token(json!({"token": "limitedtoken", "audiences": ["other"]}))
            .await
            .unwrap(),
        unknown
    );
    // The token ends at the first space, so this one is anonymous, in any audience.
    let anonymous = token(json!({"token": " limitedtoken", "audiences": ["a"]}))
        .await
        .unwrap();
    assert_eq!(anonymous.str_at(&["user", "username"]), "system:anonymous");
    assert_eq!(anonymous.get("audiences"), &json!(["a"]));
    assert_eq!(
        token(json!({"token": ""})).await.unwrap_err().message,
        "token is required for TokenReview in authentication"
    );
}

#[tokio::test]
async fn a_token_review_keeps_status_fields_it_does_not_set() {
    let own = "https://kubernetes.default.svc";
    let sent =
        json!({"authenticated": true, "error": "e", "audiences": ["a"], "user": {"uid": "u", "extra": {"k": ["v"]}}});
    let refused = token_with_status(json!({"token": "bogus"}), sent.clone())
        .await
        .unwrap();
    assert_eq!(
        refused,
        json!({"error": "invalid bearer token", "audiences": ["a"], "user": {"uid": "u", "extra": {"k": ["v"]}}})
    );
    let known = json!({"token": "limitedtoken", "audiences": [own, "x", own]});
    let known = token_with_status(known, sent).await.unwrap();
    assert_eq!(known.str_at(&["error"]), "e");
    assert_eq!(known.str_at(&["user", "uid"]), "limited-uid");
    assert!(known.at(&["user", "extra"]).is_null());
    // As often as they were asked for.
    assert_eq!(known.get("audiences"), &json!([own, own]));
}

async fn access(meta: Value, spec: Value) -> std::result::Result<Value, String> {
    let mut v = json!({"kind": "SubjectAccessReview"});
    v.set(&["metadata"], meta);
    v.set(&["spec"], spec);
    let answer = SubjectAccessReview(review_dependencies())
        .answer(&Context::system(""), v)
        .await;
    answer.map(|a| a.get("status").clone()).map_err(|e| e.message)
}

#[tokio::test]
async fn access_reviews_match_upstream() {
    let none = || json!({});
    let get = json!({"verb": "get", "resource": "pods"});
    let with = |edits: Value| {
        let mut spec = json!({"user": "x"});
        spec.set(&["resourceAttributes"], get.clone());
        for (k, v) in edits.as_object().unwrap().iter() {
            spec.set(&[k], v.clone());
        }
        spec
    };
    assert_eq!(
        access(none(), with(json!({"groups": ["system:masters"]}))).await,
        Ok(json!({"allowed": true}))
    );
    assert_eq!(access(none(), with(json!({}))).await, Ok(json!({"allowed": false})));
    assert_eq!(
        access(none(), with(json!({"user": ""}))).await.unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified"
    );
    assert_eq!(
        access(none(), json!({"user": "x"})).await.unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    );
    assert_eq!(
        access(
            none(),
            with(json!({"nonResourceAttributes": {"path": "/x", "verb": "get"}}))
        )
        .await
        .unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes"
    );
    let both = json!({"resourceAttributes": {"verb": "list", "labelSelector": {"rawSelector": "a=b", "requirements": [{"key": "a"}]}}});
    assert_eq!(
        access(none(), with(both)).await.unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.labelSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"
    );
    let meta = json!({"name": "n", "ownerReferences": [{"apiVersion": "v1", "controller": true, "kind": "K", "name": "o", "uid": "u"}],
        "managedFields": [{"manager": "parity", "operation": "Update", "apiVersion": "v1", "time": "t", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]});
    assert_eq!(
        access(meta, with(json!({}))).await.unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"n\",\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"K\",\"name\":\"o\",\"uid\":\"u\",\"controller\":true}],\"managedFields\":[{\"manager\":\"parity\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"time\":\"t\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{\"f:spec\":{}}}]}: must be empty"
    );
}

#[tokio::test]
async fn local_reviews_are_confined_to_their_namespace() {
    let local = |spec: Value| async move {
        let mut v = json!({"metadata": {"namespace": "ns"}});
        v.set(&["spec"], spec);
        let answer = LocalSubjectAccessReview(review_dependencies())
            .answer(&Context::system("ns"), v)
            .await;
        answer.map(|a| a.get("status").clone()).map_err(|e| e.message)
    };
    assert_eq!(
        local(json!({"user": "x", "resourceAttributes": {"namespace": "ns", "verb": "get"}})).await,
        Ok(json!({"allowed": false}))
    );
    assert_eq!(
        local(json!({"user": "x", "resourceAttributes": {"namespace": "other", "verb": "get"}}))
            .await
            .unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace"
    );
    assert_eq!(
        local(json!({"user": "x", "nonResourceAttributes": {"path": "/x", "verb": "get"}}))
            .await
            .unwrap_err(),
        ".authorization.k8s.io \"\" is invalid: spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: disallowed on this kind of request"
    );
}

#[tokio::test]
async fn self_subject_review_returns_the_caller() {
    let answer = SelfSubjectReview
        .answer(&Context::system(""), json!({"spec": {"x": 1}}))
        .await
        .unwrap();
    assert_eq!(answer.str_at(&["status", "userInfo", "username"]), "system:apiserver");
    assert!(answer.get("spec").is_null());
}
