//! Authorization checks: `authorizer.group('apps').resource('deployments').check('create').allowed()`. Who
//! decides is an [`Authorizer`], which the embedder supplies.

use super::{Body::Strict, Declaration};
use crate::value::authority::{Authority, Check, Decision};
use crate::value::{Out, Val, error, no_overload};
use std::sync::Arc;
use torana_apimachinery::validation::{self, NameForm};

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

fn with(check: &Arc<Check>, change: impl FnOnce(&mut Check)) -> Arc<Check> {
    // Copied per refinement, since other parts of the expression may hold the original.
    let mut check = check.as_ref().clone();
    change(&mut check);
    Arc::new(check)
}

fn path<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::Authority(Authority::Authorizer(of, check)), Val::String(path)] = args else {
        return no_overload();
    };
    // Blank paths are rejected like empty ones.
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
    // Upstream validates the name before the namespace.
    if !validation::name_is_dns_subdomain(name, NameForm::Full).is_empty() {
        return error("Invalid service account name");
    }
    if !validation::name_is_dns_label(namespace, NameForm::Full).is_empty() {
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
