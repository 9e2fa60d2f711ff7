//! SubjectAccessReview, LocalSubjectAccessReview and SelfSubjectAccessReview (upstream's
//! `pkg/registry/authorization`). All three share [`review`]; they differ by [`Scope`].

use super::ReviewDependencies;
use super::selectors;
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::objects::{validate_field_requirement, validate_label_requirement};
use crate::apimachinery::value::{Map, Value};
use crate::authz::{Attributes, Decision};
use crate::controlplane::fields::strings;
use crate::controlplane::validation::go_form;
use crate::registry::resource::CreateHandler;
use crate::registry::strategy::Context;
use crate::request::UserInfo;
use async_trait::async_trait;

pub(crate) struct SubjectAccessReview(pub ReviewDependencies);
pub(crate) struct LocalSubjectAccessReview(pub ReviewDependencies);
pub(crate) struct SelfSubjectAccessReview(pub ReviewDependencies);

fn invalid(errors: &ErrorList) -> Status {
    Status::invalid("authorization.k8s.io", "", "", errors)
}

/// The variant of the review.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Local,
    Own,
}

/// Upstream's `pkg/apis/authorization/validation`, with errors in its order.
fn check(v: &Value, scope: Scope) -> ErrorList {
    let mut out = ErrorList::new();
    let spec = v.get("spec");
    let path = FieldPath::new("spec");
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    if !resource.is_null() && !other.is_null() {
        out.push(FieldError::invalid_raw(
            &path.child("nonResourceAttributes"),
            format_non_resource(other),
            "cannot be specified in combination with resourceAttributes",
        ));
    }
    if resource.is_null() && other.is_null() {
        out.push(FieldError::invalid(
            &path.child("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    let nobody = spec.str_at(&["user"]).is_empty() && spec.get("groups").items().is_empty();
    if scope != Scope::Own && nobody {
        out.push(FieldError::invalid(
            &path.child("user"),
            "",
            "at least one of user or group must be specified",
        ));
    }
    for key in ["fieldSelector", "labelSelector"] {
        selector(
            &mut out,
            resource.get(key),
            key,
            &path.child("resourceAttributes").child(key),
        );
    }
    metadata(&mut out, v, scope);
    if scope == Scope::Local {
        if !resource.is_null() && resource.str_at(&["namespace"]) != v.namespace() {
            out.push(FieldError::invalid(
                &path.child("resourceAttributes").child("namespace"),
                resource.str_at(&["namespace"]),
                "must match metadata.namespace",
            ));
        }
        if !other.is_null() {
            out.push(FieldError::invalid_raw(
                &path.child("nonResourceAttributes"),
                format_non_resource(other),
                "disallowed on this kind of request",
            ));
        }
    }
    out
}

/// The non-resource attributes as errors print them: upstream marshals its internal struct, which has no JSON
/// tags.
fn format_non_resource(v: &Value) -> String {
    format!(
        "{{\"Path\":{},\"Verb\":{}}}",
        quote(v.str_at(&["path"])),
        quote(v.str_at(&["verb"]))
    )
}

fn selector(out: &mut ErrorList, v: &Value, key: &str, at: &FieldPath) {
    if v.is_null() {
        return;
    }
    let raw = v.str_at(&["rawSelector"]);
    let listed = !v.get("requirements").items().is_empty();
    if !raw.is_empty() && listed {
        out.push(FieldError::invalid(
            &at.child("rawSelector"),
            raw,
            // The missing `be` is upstream's.
            "may not specified at the same time as requirements",
        ));
    }
    if raw.is_empty() && !listed {
        out.push(FieldError::required(
            &at.child("requirements"),
            format!("when spec.resourceAttributes.{key} is specified, requirements or rawSelector is required"),
        ));
    }
    for (i, requirement) in v.get("requirements").items().iter().enumerate() {
        let at = at.child("requirements").index(i);
        match key {
            "labelSelector" => validate_label_requirement(requirement, &at, out),
            _ => validate_field_requirement(requirement, &at, out),
        }
    }
}

/// Annotation that requests an explanation: the review is returned with the rule, role and binding that allow
/// the access, or with the closest match. An extension of this gateway: upstream accepts no annotations on
/// reviews.
pub(crate) const EXPLAIN: &str = "torana.dev/explain-access";

fn wants_explanation(v: &Value) -> bool {
    let annotations = v.at(&["metadata", "annotations"]).as_object();
    // Any annotation beside it is rejected, as upstream rejects all annotations.
    annotations.is_some_and(|a| a.len() == 1 && a.contains_key(EXPLAIN))
}

fn metadata(out: &mut ErrorList, v: &Value, scope: Scope) {
    let meta = v.get("metadata");
    let wants_explanation = wants_explanation(v);
    // Upstream compares the metadata with an empty one, apart from managed fields and the namespace of a
    // local review.
    let allowed = |k: &str| match k {
        "managedFields" => true,
        "namespace" => scope == Scope::Local,
        "annotations" => wants_explanation,
        _ => false,
    };
    let odd = meta
        .as_object()
        .is_some_and(|m| m.iter().any(|(k, x)| !(x.is_empty_value() || allowed(k))));
    if odd {
        let why = match scope {
            Scope::Local => "must be empty except for namespace",
            _ => "must be empty",
        };
        out.push(FieldError::invalid_raw(
            &FieldPath::new("metadata"),
            go_form::object_meta(meta),
            why,
        ));
    }
}

fn subject(spec: &Value) -> UserInfo {
    let owned = |v: &Value| strings(v).into_iter().map(str::to_owned).collect::<Vec<_>>();
    UserInfo {
        name: spec.str_at(&["user"]).to_owned(),
        uid: spec.str_at(&["uid"]).to_owned(),
        groups: owned(spec.get("groups")),
        extra: spec
            .get("extra")
            .as_object()
            .into_iter()
            .flat_map(Map::iter)
            .map(|(k, v)| (k.to_owned(), owned(v)))
            .collect(),
    }
}

/// Evaluates a review. Returns its status, and the explanation if one is requested.
async fn evaluate(review_dependencies: &ReviewDependencies, user: &UserInfo, object: &Value) -> (Value, Option<Value>) {
    let spec = object.get("spec");
    let resource = spec.get("resourceAttributes");
    let of = |key: &str| resource.str_at(&[key]);
    let (fields, labels) = (
        selectors::fields(resource.get("fieldSelector")),
        selectors::labels(resource.get("labelSelector")),
    );
    let attributes = if resource.is_null() {
        let other = spec.get("nonResourceAttributes");
        Attributes {
            verb: other.str_at(&["verb"]),
            path: other.str_at(&["path"]),
            ..Attributes::empty(user)
        }
    } else {
        Attributes {
            user,
            verb: of("verb"),
            is_resource: true,
            api_group: of("group"),
            // Upstream's `ResourceAttributesFrom` matches any version if none is given.
            api_version: if of("version").is_empty() { "*" } else { of("version") },
            namespace: of("namespace"),
            resource: of("resource"),
            subresource: of("subresource"),
            name: of("name"),
            path: "",
            field_selector: &fields.text,
            label_selector: &labels.text,
        }
    };
    let verdict = review_dependencies.authorizer.authorize(&attributes).await;
    let mut status = crate::json!({"allowed": (verdict.decision == Decision::Allow)});
    // Only for an explicit deny; no opinion is merely not allowed.
    if verdict.decision == Decision::Deny {
        status.set(&["denied"], true);
    }
    if !verdict.reason.is_empty() {
        status.set(&["reason"], verdict.reason.as_ref());
    }
    let errors = [
        verdict.error,
        fields.problem("fieldSelector"),
        labels.problem("labelSelector"),
    ];
    let errors: Vec<String> = errors.into_iter().flatten().filter(|e| !e.is_empty()).collect();
    if !errors.is_empty() {
        status.set(&["evaluationError"], errors.join("; "));
    }
    // Only reports: the decision above does not depend on it.
    let why = if wants_explanation(object) {
        let found = review_dependencies.roles.explain(&attributes).await;
        Some(found.map_or_else(|behind| crate::json!({"error": (behind.to_string())}), |e| e.to_value()))
    } else {
        None
    };
    (status, why)
}

async fn review(
    review_dependencies: &ReviewDependencies,
    cx: &Context,
    mut object: Value,
    scope: Scope,
) -> Result<Value> {
    if scope == Scope::Local && object.namespace().is_empty() {
        // Validation compares it with the attributes, and clients usually leave it to the path.
        object.set_meta("namespace", cx.namespace.as_str());
    }
    let errors = check(&object, scope);
    if !errors.is_empty() {
        return Err(invalid(&errors));
    }
    // After validation, in the order of upstream's `localsubjectaccessreview` storage.
    if scope == Scope::Local && object.namespace() != cx.namespace {
        return Err(Status::bad_request(format!(
            "spec.resourceAttributes.namespace must match namespace: {}",
            cx.namespace
        )));
    }
    let (status, why) = match scope {
        Scope::Own => evaluate(review_dependencies, &cx.user, &object).await,
        _ => evaluate(review_dependencies, &subject(object.get("spec")), &object).await,
    };
    object.set(&["status"], status);
    if let Some(why) = why {
        object.set(&["metadata", "annotations", EXPLAIN], json::to_string(&why));
    }
    Ok(object)
}

#[async_trait]
impl CreateHandler for SubjectAccessReview {
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value> {
        review(&self.0, cx, object, Scope::Cluster).await
    }
}

#[async_trait]
impl CreateHandler for LocalSubjectAccessReview {
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value> {
        review(&self.0, cx, object, Scope::Local).await
    }
}

#[async_trait]
impl CreateHandler for SelfSubjectAccessReview {
    async fn answer(&self, cx: &Context, object: Value) -> Result<Value> {
        review(&self.0, cx, object, Scope::Own).await
    }
}
