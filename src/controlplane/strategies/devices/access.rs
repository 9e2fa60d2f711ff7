//! Permission checks of ResourceClaims beyond plain RBAC on the object: admin access to devices (a namespace
//! label), binding a claim, and reporting device status. A refusal is a cause of a 422, as upstream, not a
//! 403.

use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldErrorKind, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::validation::dns1123_subdomain;
use crate::apimachinery::value::Value;
use crate::authz::{self, Attributes, Authorizer, Decision};
use crate::controlplane::fields::{same, strings};
use crate::registry::StoreLookup;
use crate::registry::strategy::Context;
use std::collections::{BTreeSet, HashSet};

const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Refuses the first request for admin access, unless the namespace is labelled for it. As upstream, the path
/// in the cause is the claim's even if the object is a template.
pub(super) async fn admin_in_requests(stores: &StoreLookup, namespace: &str, requests: &Value) -> ErrorList {
    let wants = |r: &Value| r.at(&["exactly", "adminAccess"]).as_bool() == Some(true);
    let Some(i) = requests.items().iter().position(wants) else {
        return ErrorList::new();
    };
    let at = FieldPath::new("spec").child("devices").child("requests").index(i);
    admin(stores, namespace, &at.child("adminAccess")).await
}

/// As [`admin_in_requests`], for allocation results. Admin access that is already allocated is not checked
/// again.
pub(super) async fn admin_in_results(stores: &StoreLookup, new: &Value, old: &Value) -> ErrorList {
    let first = |v: &Value| {
        let results = v.at(&["status", "allocation", "devices", "results"]).items();
        results
            .iter()
            .position(|r| r.get("adminAccess").as_bool() == Some(true))
    };
    let (None, Some(i)) = (first(old), first(new)) else {
        return ErrorList::new();
    };
    let at = ["allocation", "devices", "results"]
        .iter()
        .fold(FieldPath::new("status"), |at, k| at.child(k))
        .index(i);
    admin(stores, new.namespace(), &at.child("adminAccess")).await
}

async fn admin(stores: &StoreLookup, namespace: &str, at: &FieldPath) -> ErrorList {
    let found = match stores.get("", "namespaces") {
        Ok(store) => store.get_value("", namespace).await,
        Err(e) => Err(e),
    };
    match found {
        Err(e) => {
            let mut error = FieldError::required(
                at,
                format!("could not retrieve namespace to verify admin access: {}", e.message),
            );
            // No constructor makes this kind; only the message of the required error is used.
            error.kind = FieldErrorKind::Internal;
            ErrorList::from(vec![error])
        }
        Ok(ns) if ns.label(ADMIN_LABEL) == Some("true") => ErrorList::new(),
        Ok(_) => {
            let why =
                format!("admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace");
            ErrorList::from(vec![FieldError::forbidden(at, why)])
        }
    }
}

/// Returns the message of upstream's 403 if the authorizer does not allow the action, `None` if it does.
async fn denied(authorizer: &dyn Authorizer, asked: &Attributes<'_>) -> Option<String> {
    let verdict = authorizer.authorize(asked).await;
    if verdict.decision == Decision::Allow {
        return None;
    }
    let reason = match (verdict.error, verdict.reason.as_ref()) {
        (Some(e), "") => e,
        (Some(e), reason) => format!("{e}: {reason}"),
        (None, reason) => reason.to_owned(),
    };
    Some(authz::forbidden(asked, &reason).message)
}

fn part<'a>(cx: &'a Context, verb: &'a str, subresource: &'a str) -> Attributes<'a> {
    Attributes {
        user: &cx.user,
        verb,
        is_resource: true,
        api_group: super::GROUP,
        api_version: "v1",
        // All namespaces: a scheduler binds claims wherever they are.
        namespace: "",
        resource: "resourceclaims",
        subresource,
        name: "",
        path: "",
        field_selector: "",
        label_selector: "",
    }
}

/// Requires permission on `resourceclaims/binding`, in all namespaces, to change the allocation or
/// reservations.
pub(super) async fn binding(authorizer: &dyn Authorizer, cx: &Context, new: &Value, old: &Value) -> ErrorList {
    let kept = |key: &str| same(new.at(&["status", key]), old.at(&["status", key]));
    if kept("allocation") && kept("reservedFor") {
        return ErrorList::new();
    }
    let Some(why) = denied(authorizer, &part(cx, cx.verb, "binding")).await else {
        return ErrorList::new();
    };
    let why = format!(
        "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{}\" permission: {why}",
        cx.verb
    );
    ErrorList::from(vec![FieldError::forbidden(
        &FieldPath::new("status").child("allocation"),
        why,
    )])
}

/// The node a claim is allocated to, or `""` unless the node selector is exactly one node name.
fn node_of(claim: &Value) -> &str {
    let terms = claim.at(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"]);
    let [term] = terms.items() else { return "" };
    match (term.get("matchExpressions").items(), term.get("matchFields").items()) {
        ([], [f]) if f.str_at(&["key"]) == "metadata.name" && f.str_at(&["operator"]) == "In" => {
            match strings(f.get("values")).as_slice() {
                [one] => one,
                _ => "",
            }
        }
        _ => "",
    }
}

/// True for a service account whose token is bound to a pod on `node`.
fn is_on_node(cx: &Context, node: &str) -> bool {
    let mut account = cx.user.name.strip_prefix(SERVICE_ACCOUNT).unwrap_or("").split(':');
    let is_account = matches!(
        (account.next(), account.next(), account.next()),
        (Some(ns), Some(name), None) if !ns.is_empty() && !name.is_empty()
    );
    match cx.user.extra.get(NODE_NAME).map(Vec::as_slice) {
        Some([claimed]) => is_account && !node.is_empty() && claimed == node && dns1123_subdomain(claimed).is_empty(),
        _ => false,
    }
}

/// Requires permission on `resourceclaims/driver` for each driver whose device status changes. The verb is
/// `associated-node:…` for a service account on the claim's node, or `arbitrary-node:…` from anywhere.
pub(super) async fn devices(authorizer: &dyn Authorizer, cx: &Context, new: &Value, old: &Value) -> ErrorList {
    let list = |v: &'_ Value| -> Vec<(String, Value)> {
        let all = v.at(&["status", "devices"]).items();
        all.iter().map(|d| (json::to_string(d), d.clone())).collect()
    };
    fn id(v: &Value) -> [&str; 4] {
        ["driver", "pool", "device", "shareID"].map(|k| v.str_at(&[k]))
    }
    let (now, was) = (list(new), list(old));
    // Hashed, because comparing every pair would be quadratic in lists whose length clients choose.
    let before: HashSet<&str> = was.iter().map(|(text, _)| text.as_str()).collect();
    let there: HashSet<[&str; 4]> = now.iter().map(|(_, d)| id(d)).collect();
    let changed = now.iter().filter(|(text, _)| !before.contains(text.as_str()));
    let removed = was.iter().filter(|(_, d)| !there.contains(&id(d)));
    // Sorted, so that causes come in a stable order and each driver is authorized once.
    let drivers: BTreeSet<&str> = changed.chain(removed).map(|(_, d)| d.str_at(&["driver"])).collect();

    let mut verbs = vec![format!("arbitrary-node:{}", cx.verb)];
    if is_on_node(cx, node_of(new)) {
        // The narrower permission is tried first, and its refusal is the one reported.
        verbs.insert(0, format!("associated-node:{}", cx.verb));
    }
    let mut out = ErrorList::new();
    for name in drivers {
        let mut first = None;
        let mut allowed = false;
        for verb in &verbs {
            let asked = Attributes {
                name,
                namespace: &cx.namespace,
                ..part(cx, verb, "driver")
            };
            match denied(authorizer, &asked).await {
                None => allowed = true,
                Some(why) => first = first.or(Some(why)),
            }
            if allowed {
                break;
            }
        }
        if let (false, Some(why)) = (allowed, first) {
            let why = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                verbs.join(" ")
            );
            out.push(FieldError::forbidden(&FieldPath::new("status").child("devices"), why));
        }
    }
    out
}
