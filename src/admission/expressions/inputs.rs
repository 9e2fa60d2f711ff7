//! The values of the variables that expressions may read ([`Inputs`]), other than those that a policy computes,
//! and the authorization checks of expressions ([`Checks`]).

use crate::admission::versions::own;
use crate::admission::{Attributes, ObjectLookup, ServedKind};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::{Map, Str, Value};
use crate::authz::{self, Authorizer};
use crate::json;
use crate::request::UserInfo;
use crate::sync::Mutex;
use std::sync::Arc;
use torana_cel::{Check, Decision};

/// The values of an evaluation.
#[derive(Clone, Default)]
pub(crate) struct Inputs {
    /// The object in its current state.
    pub object: Arc<Value>,
    /// The stored object.
    pub old: Arc<Value>,
    /// The attributes of the request.
    pub request: Arc<Value>,
    /// The namespace as [`namespace`] presents it.
    pub namespace: Arc<Value>,
    /// The parameters of a policy.
    pub params: Arc<Value>,
}

impl Inputs {
    /// The values for a write in the version `target`; `object` is in the version `version`. They have no
    /// namespace and no parameters.
    ///
    /// # Errors
    /// The error of the conversion.
    pub(crate) async fn new(
        cluster: &ObjectLookup,
        attributes: &Attributes,
        (object, version): (&Value, &ServedKind),
        target: &ServedKind,
    ) -> Result<Self> {
        let own = own(attributes);
        let old = match &attributes.old_object {
            // Usually the request's own version matches, so nothing is copied.
            Some(old) if own.kind == target.kind => old.clone(),
            Some(old) => Arc::new(cluster.convert(old.as_ref().clone(), &own, target).await?),
            None => Arc::default(),
        };
        Ok(Self {
            object: Arc::new(cluster.convert(object.clone(), version, target).await?),
            old,
            request: Arc::new(request(attributes, target)),
            ..Self::default()
        })
    }
}

fn member(map: &mut Map, key: &str, value: &str) {
    if !value.is_empty() {
        map.insert(key, value);
    }
}

fn texts(pairs: [(&str, &Str); 3]) -> Value {
    let mut map = Map::default();
    pairs.into_iter().for_each(|(key, value)| member(&mut map, key, value));
    Value::Object(map)
}

/// The variable `request`. Empty strings are absent: upstream converts the struct to JSON with `omitempty`.
fn request(attributes: &Attributes, target: &ServedKind) -> Value {
    let of = |served: (
        &crate::apimachinery::GroupVersionKind,
        &crate::apimachinery::GroupVersionResource,
    )| {
        let (kind, resource) = served;
        [
            texts([("group", &kind.group), ("version", &kind.version), ("kind", &kind.kind)]),
            texts([
                ("group", &resource.group),
                ("version", &resource.version),
                ("resource", &resource.resource),
            ]),
        ]
    };
    let [kind, resource] = of((&target.kind, &target.resource));
    let [request_kind, request_resource] = of((&attributes.kind, &attributes.resource));
    let mut map = Map::default();
    map.insert("kind", kind);
    map.insert("resource", resource);
    map.insert("requestKind", request_kind);
    map.insert("requestResource", request_resource);
    // Equivalent resources have the same subresource, so both are equal.
    for key in ["subResource", "requestSubResource"] {
        member(&mut map, key, &attributes.subresource);
    }
    member(&mut map, "name", &attributes.name);
    member(&mut map, "namespace", attributes.request_namespace());
    map.insert("operation", attributes.operation.as_str());
    map.insert("userInfo", user(&attributes.user));
    map.insert("dryRun", attributes.dry_run);
    if !attributes.options.is_null() {
        map.insert("options", attributes.options.as_ref().clone());
    }
    Value::Object(map)
}

fn user(user: &UserInfo) -> Value {
    let mut map = Map::default();
    member(&mut map, "username", &user.name);
    member(&mut map, "uid", &user.uid);
    if !user.groups.is_empty() {
        map.insert("groups", user.groups.clone());
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(k, v)| (k.as_str().into(), v.clone().into()));
        map.insert("extra", Value::Object(Map::from_pairs(extra.collect())));
    }
    Value::Object(map)
}

/// The members of a namespace that expressions may read.
pub(crate) fn namespace(stored: Option<&Value>) -> Value {
    // The fields that upstream's `CreateNamespaceObject` copies. Others, such as managedFields, must not be
    // readable.
    const METADATA: [&str; 11] = [
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "finalizers",
    ];
    let Some(stored) = stored else { return Value::Null };
    let mut shown = json!({});
    let members = METADATA.map(|key| ["metadata", key]);
    for path in members
        .into_iter()
        .chain([["spec", "finalizers"], ["status", "phase"], ["status", "conditions"]])
    {
        let value = stored.at(&path);
        if !value.is_null() {
            shown.set(&path, value.clone());
        }
    }
    shown
}

/// The authorization checks of expressions. CEL is synchronous: a check that would have to await is recorded
/// as pending, and the evaluation is repeated once it is decided. The cost of a check bounds the number of
/// repetitions.
pub(crate) struct Checks {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<UserInfo>,
    decisions: Mutex<Decisions>,
}

#[derive(Default)]
struct Decisions {
    made: Vec<(Check, Decision)>,
    pending: Option<Check>,
}

impl Checks {
    /// Checks by `user`, unless they name a service account.
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>, user: Arc<UserInfo>) -> Self {
        Self {
            authorizer,
            user,
            decisions: Mutex::default(),
        }
    }

    /// Decides the pending check. False if there is none.
    pub(crate) async fn decide_pending(&self) -> bool {
        let Some(check) = self.decisions.lock().pending.take() else {
            return false;
        };
        let user = self.user_of(&check);
        // Without the lock, which must not be held over an await.
        let verdict = self.authorizer.authorize(&attributes(&check, &user)).await;
        self.decisions.lock().made.push((check, decision(verdict)));
        true
    }

    fn user_of(&self, check: &Check) -> Arc<UserInfo> {
        let Some((namespace, name)) = &check.service_account else {
            return self.user.clone();
        };
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", &of_namespace, "system:authenticated"];
        Arc::new(UserInfo::system(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &groups,
        ))
    }
}

impl torana_cel::Authorizer for Checks {
    fn authorize(&self, check: &Check) -> Decision {
        // Linear: an expression rarely has more than one check, and their cost bounds their number. Cached decisions
        // also make repeated evaluations consistent with each other.
        if let Some((_, decision)) = self.decisions.lock().made.iter().find(|(decided, _)| decided == check) {
            return decision.clone();
        }
        let user = self.user_of(check);
        match self.authorizer.authorize_sync(&attributes(check, &user)) {
            Some(verdict) => {
                let decision = decision(verdict);
                self.decisions.lock().made.push((check.clone(), decision.clone()));
                decision
            }
            None => {
                // The default decision lets the evaluation end quickly; its findings are discarded.
                self.decisions.lock().pending = Some(check.clone());
                Decision::default()
            }
        }
    }
}

fn attributes<'a>(check: &'a Check, user: &'a UserInfo) -> authz::Attributes<'a> {
    let empty = authz::Attributes {
        verb: &check.verb,
        ..authz::Attributes::empty(user)
    };
    match &check.path {
        Some(path) => authz::Attributes { path, ..empty },
        None => authz::Attributes {
            is_resource: true,
            api_group: &check.group,
            // Upstream's checks apply to all versions, which matters to webhook authorizers.
            api_version: "*",
            namespace: &check.namespace,
            resource: &check.resource,
            subresource: &check.subresource,
            name: &check.name,
            field_selector: &check.field_selector,
            label_selector: &check.label_selector,
            ..empty
        },
    }
}

fn decision(verdict: authz::Verdict) -> Decision {
    Decision {
        allowed: verdict.decision == authz::Decision::Allow,
        reason: verdict.reason.into_owned(),
        error: verdict.error,
    }
}

/// The check of the request's own resource.
pub(crate) fn own_check(attributes: &Attributes) -> Check {
    Check {
        group: attributes.resource.group.to_string(),
        resource: attributes.resource.resource.to_string(),
        subresource: attributes.subresource.clone(),
        namespace: attributes.namespace.clone(),
        name: attributes.name.clone(),
        ..Check::default()
    }
}
