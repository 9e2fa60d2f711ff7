//! Classifies requests by FlowSchema (upstream's `k8s.io/apiserver/pkg/util/flowcontrol/rule.go`). Start at
//! [`classify`].

mod bits;
mod paths;
mod rule;

use super::level::Level;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use http::HeaderValue;
use rule::Rules;
use std::sync::Arc;

/// Name of the schema and of the level of requests that match no other.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// A FlowSchema object with an index of its rules, made once per change of the object.
pub(crate) struct IndexedSchema {
    /// The object without `spec.rules`, whose tree takes several times the memory of the index.
    pub object: Value,
    /// Shared, so that a change of another object neither indexes nor copies them.
    pub(super) rules: Arc<Rules>,
}

/// A FlowSchema whose level exists, parsed once per change of the objects instead of once per request.
pub(crate) struct FlowSchema {
    /// `metadata.name`, part of the flow's id and a metric label.
    pub name: Arc<str>,
    /// The UIDs of the schema and its level.
    pub uids: Arc<Uids>,
    /// The level that its requests enter.
    pub level: Arc<Level>,
    /// Its number in the level's statistics.
    pub account: u32,
    precedence: i64,
    pub(super) rules: Arc<Rules>,
    method: Option<Distinguisher>,
}

/// The UIDs in the headers of responses; empty if there is no such object.
#[derive(Debug)]
pub struct Uids {
    /// UID of the flow schema.
    pub schema: HeaderValue,
    /// UID of the priority level.
    pub level: HeaderValue,
}

/// The distinguisher of the flows of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distinguisher {
    /// Each user is a flow.
    ByUser,
    /// Each namespace is a flow.
    ByNamespace,
}

impl IndexedSchema {
    /// Indexes the rules of an object, which may have megabytes.
    pub(crate) fn of(mut object: Value) -> Self {
        let rules = Arc::new(Rules::of(&object));
        object.unset(&["spec", "rules"]);
        Self { object, rules }
    }
}

impl FlowSchema {
    /// Parses what is not indexed, and assigns the schema a number in its level.
    pub(crate) fn parse(schema: &IndexedSchema, level: Arc<Level>, level_uid: HeaderValue) -> Self {
        let object = &schema.object;
        let name = object.name();
        let method = match object.str_at(&["spec", "distinguisherMethod", "type"]) {
            "ByUser" => Some(Distinguisher::ByUser),
            "ByNamespace" => Some(Distinguisher::ByNamespace),
            _ => None,
        };
        Self {
            account: level.account_of(name),
            name: name.into(),
            uids: Arc::new(Uids {
                schema: uid(object),
                level: level_uid,
            }),
            level,
            // Upstream's default, for objects that were stored without defaulting.
            precedence: object.at(&["spec", "matchingPrecedence"]).as_i64().unwrap_or(1000),
            rules: schema.rules.clone(),
            method,
        }
    }

    /// The distinguisher of a request that matches; empty if all of them are one flow.
    pub(crate) fn distinguisher<'a>(&self, user: &'a UserInfo, info: &'a RequestInfo) -> &'a str {
        distinguisher(self.method, user, info)
    }

    /// The key by which schemas are ordered.
    pub(crate) fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }
}

/// The part of a flow's id that differs between the requests of a schema.
pub(crate) fn distinguisher<'a>(method: Option<Distinguisher>, user: &'a UserInfo, info: &'a RequestInfo) -> &'a str {
    match method {
        None => "",
        Some(Distinguisher::ByUser) => &user.name,
        Some(Distinguisher::ByNamespace) => &info.namespace,
    }
}

/// The first schema that matches, or the catch-all schema. `schemas` are in their order and include the
/// mandatory ones.
pub(crate) fn classify<'a>(schemas: &'a [FlowSchema], user: &UserInfo, info: &RequestInfo) -> &'a FlowSchema {
    let matching = schemas.iter().find(|s| s.rules.matches(user, info));
    matching
        // A stored catch-all schema may have been edited to match less than everything. It has the highest
        // precedence number, so searching from the end finds it at once.
        .or_else(|| schemas.iter().rev().find(|s| &*s.name == CATCH_ALL))
        .expect("the catch-all schema is mandatory: the controller adds it if it is missing")
}

/// An object's UID as a header value.
pub(crate) fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.str_at(&["metadata", "uid"])).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
