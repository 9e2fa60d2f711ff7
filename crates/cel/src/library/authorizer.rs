//! Authorization checks: `authorizer.group('apps').resource('deployments').check('create').allowed()`. Who decides is an
//! [`Authorizer`], which the embedder supplies.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, error, no_overload};
use std::fmt;
use std::sync::Arc;
use torana_apimachinery::validation;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("path", Strict(path), &["Authorizer.(string) PathCheck"]),
    ("group", Strict(group), &["Authorizer.(string) GroupCheck"]),
    (
        "serviceAccount",
        Strict(service_account),
        &["Authorizer.(string, string) Authorizer"],
    ),
    ("resource", Strict(resource), &["GroupCheck.(string) ResourceCheck"]),
    ("subresource", Strict(|a| refine(a, |c, s| c.subresource = s)), REFINED),
    ("namespace", Strict(|a| refine(a, |c, s| c.namespace = s)), REFINED),
    ("name", Strict(|a| refine(a, |c, s| c.name = s)), REFINED),
    (
        "fieldSelector",
        Strict(|a| refine(a, |c, s| c.field_selector = s)),
        REFINED,
    ),
    (
        "labelSelector",
        Strict(|a| refine(a, |c, s| c.label_selector = s)),
        REFINED,
    ),
    (
        "check",
        Strict(check),
        &["PathCheck.(string) Decision", "ResourceCheck.(string) Decision"],
    ),
    (
        "allowed",
        Strict(|a| part(a, |d| d.allowed.into())),
        &["Decision.() bool"],
    ),
    (
        "reason",
        Strict(|a| part(a, |d| d.reason.as_str().into())),
        &["Decision.() string"],
    ),
    (
        "errored",
        Strict(|a| part(a, |d| d.error.is_some().into())),
        &["Decision.() bool"],
    ),
    (
        "error",
        Strict(|a| part(a, |d| d.error.as_deref().unwrap_or("").into())),
        &["Decision.() string"],
    ),
];

const REFINED: &[&str] = &["ResourceCheck.(string) ResourceCheck"];

/// Decides about checks of expressions.
pub trait Authorizer: Send + Sync {
    /// The decision about a check.
    fn authorize(&self, check: &Check) -> Decision;
}

/// What an expression asks an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of request attributes")]
pub struct Check {
    /// Namespace and name of the service account that is asked about, if it is not the requesting user.
    pub service_account: Option<(String, String)>,
    pub verb: String,
    /// The path of a request that is for no resource.
    pub path: Option<String>,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// As written; empty if there is none.
    pub field_selector: String,
    /// As written; empty if there is none.
    pub label_selector: String,
}

/// The answer to a [`Check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the request would be allowed.
    pub allowed: bool,
    /// Why, for people.
    pub reason: String,
    /// What went wrong.
    pub error: Option<String>,
}

/// A value of the authorizer's library.
#[derive(Clone)]
pub enum Authority<'a> {
    /// `kubernetes.authorization.Authorizer`, perhaps for a service account.
    Authorizer(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.PathCheck`
    Path(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.GroupCheck`
    Group(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.ResourceCheck`
    Resource(&'a dyn Authorizer, Arc<Check>),
    /// `kubernetes.authorization.Decision`
    Decision(Arc<Decision>),
}

impl<'a> Val<'a> {
    /// The value of a variable of type [`Type::AUTHORIZER`](crate::Type::AUTHORIZER).
    pub fn authorizer(of: &'a dyn Authorizer) -> Self {
        Self::Authority(Authority::Authorizer(of, Arc::default()))
    }

    /// The value of a variable of type [`Type::RESOURCE_CHECK`](crate::Type::RESOURCE_CHECK): a check of the resource that
    /// a request is for.
    pub fn resource_check(of: &'a dyn Authorizer, check: Check) -> Self {
        Self::Authority(Authority::Resource(of, Arc::new(check)))
    }
}

impl Authority<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(..) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Equality by what is asked, or by the answer.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Authorizer(_, a), Self::Authorizer(_, b))
            | (Self::Path(_, a), Self::Path(_, b))
            | (Self::Group(_, a), Self::Group(_, b))
            | (Self::Resource(_, a), Self::Resource(_, b)) => a == b,
            (Self::Decision(a), Self::Decision(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

fn with(check: &Arc<Check>, change: impl FnOnce(&mut Check)) -> Arc<Check> {
    let mut check = check.as_ref().clone();
    change(&mut check);
    Arc::new(check)
}

fn path<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Authority(Authority::Authorizer(of, check)), Val::String(path)] = args else {
        return no_overload();
    };
    if path.trim().is_empty() {
        return error("path must not be empty");
    }
    let check = with(check, |c| c.path = Some(path.to_string()));
    Ok(Val::Authority(Authority::Path(*of, check)))
}

fn group<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Authority(Authority::Authorizer(of, check)), Val::String(group)] = args else {
        return no_overload();
    };
    let check = with(check, |c| c.group = group.to_string());
    Ok(Val::Authority(Authority::Group(*of, check)))
}

fn service_account<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [
        Val::Authority(Authority::Authorizer(of, check)),
        Val::String(namespace),
        Val::String(name),
    ] = args
    else {
        return no_overload();
    };
    if !validation::name_is_dns_subdomain(name, false).is_empty() {
        return error("Invalid service account name");
    }
    if !validation::name_is_dns_label(namespace, false).is_empty() {
        return error("Invalid service account namespace");
    }
    let check = with(check, |c| {
        c.service_account = Some((namespace.to_string(), name.to_string()))
    });
    Ok(Val::Authority(Authority::Authorizer(*of, check)))
}

fn resource<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Authority(Authority::Group(of, check)), Val::String(resource)] = args else {
        return no_overload();
    };
    if resource.trim().is_empty() {
        return error("resource must not be empty");
    }
    let check = with(check, |c| c.resource = resource.to_string());
    Ok(Val::Authority(Authority::Resource(*of, check)))
}

fn refine<'a>(args: &[Val<'a>], change: fn(&mut Check, String)) -> Out<'a> {
    let [Val::Authority(Authority::Resource(of, check)), Val::String(s)] = args else {
        return no_overload();
    };
    let check = with(check, |c| change(c, s.to_string()));
    Ok(Val::Authority(Authority::Resource(*of, check)))
}

fn check<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [
        Val::Authority(Authority::Path(of, check) | Authority::Resource(of, check)),
        Val::String(verb),
    ] = args
    else {
        return no_overload();
    };
    let check = with(check, |c| c.verb = verb.to_string());
    Ok(Val::Authority(Authority::Decision(Arc::new(of.authorize(&check)))))
}

fn part<'a>(args: &[Val<'a>], of: for<'d> fn(&'d Decision) -> Val<'a>) -> Out<'a> {
    match args {
        [Val::Authority(Authority::Decision(decision))] => Ok(of(decision)),
        _ => no_overload(),
    }
}
