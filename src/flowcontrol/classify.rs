//! Classifies requests by FlowSchema and PriorityLevelConfiguration (upstream's
//! `k8s.io/apiserver/pkg/util/flowcontrol/rule.go`), whose UIDs are returned to clients in headers.
//!
//! Start at [`FlowSchemas::classify`], which reads a lock-free snapshot. A watcher of the objects calls
//! [`FlowSchemas::replace`].

mod rule;

use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use arc_swap::ArcSwap;
use http::HeaderValue;
use prometheus::{IntCounter, IntCounterVec};
use rule::Rules;
use std::collections::HashMap;
use std::sync::Arc;

/// The schema of requests that match no other.
const CATCH_ALL: &str = "catch-all";

/// The classification of a request. UIDs are empty while the catch-all objects do not exist.
#[derive(Clone, Debug)]
pub struct Flow {
    /// UID of the FlowSchema.
    pub schema_uid: HeaderValue,
    /// UID of the PriorityLevelConfiguration.
    pub level_uid: HeaderValue,
    /// Counter of dispatched requests, if counting is enabled.
    dispatched: Option<IntCounter>,
}

struct Schema {
    precedence: i64,
    name: String,
    rules: Rules,
    flow: Flow,
}

/// The current FlowSchemas.
pub struct FlowSchemas {
    sorted: ArcSwap<Vec<Schema>>,
    fallback: Flow,
    dispatched: Option<IntCounterVec>,
}

impl FlowSchemas {
    /// Without schemas: every request is classified as catch-all with empty UIDs.
    pub fn new() -> Self {
        Self {
            sorted: ArcSwap::default(),
            fallback: Flow {
                schema_uid: HeaderValue::from_static(""),
                level_uid: HeaderValue::from_static(""),
                dispatched: None,
            },
            dispatched: None,
        }
    }

    /// Counts dispatched requests in `family`, labelled by schema and level name.
    #[must_use]
    pub fn with_counter(mut self, family: IntCounterVec) -> Self {
        self.fallback.dispatched = Some(family.with_label_values(&[CATCH_ALL, CATCH_ALL]));
        self.dispatched = Some(family);
        self
    }

    /// Replaces all FlowSchemas and PriorityLevelConfigurations. Schemas whose level does not exist are ignored.
    pub fn replace<'a>(
        &self,
        schemas: impl IntoIterator<Item = &'a Value>,
        levels: impl IntoIterator<Item = &'a Value>,
    ) {
        let level_uids: HashMap<&str, HeaderValue> = levels
            .into_iter()
            .map(|l| (l.str_at(&["metadata", "name"]), uid(l)))
            .collect();
        let mut sorted: Vec<Schema> = schemas
            .into_iter()
            .filter_map(|s| {
                let level = s.str_at(&["spec", "priorityLevelConfiguration", "name"]);
                Some(Schema {
                    precedence: s.at(&["spec", "matchingPrecedence"]).as_i64().unwrap_or(1000),
                    name: s.str_at(&["metadata", "name"]).to_owned(),
                    rules: Rules::parse(s.at(&["spec", "rules"])),
                    flow: Flow {
                        schema_uid: uid(s),
                        level_uid: level_uids.get(level)?.clone(),
                        // Resolved once per change of the objects instead of once per request.
                        dispatched: self
                            .dispatched
                            .as_ref()
                            .map(|family| family.with_label_values(&[s.str_at(&["metadata", "name"]), level])),
                    },
                })
            })
            .collect();
        sorted.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        self.sorted.store(Arc::new(sorted));
    }

    /// Classifies a request by the matching schema with the lowest precedence, then the first name.
    pub fn classify(&self, user: &UserInfo, info: &RequestInfo) -> Flow {
        let sorted = self.sorted.load();
        let found = sorted.iter().find(|s| s.rules.matches(user, info));
        found
            .or_else(|| sorted.iter().find(|s| s.name == CATCH_ALL))
            .map_or_else(|| self.fallback.clone(), |s| s.flow.clone())
    }
}

impl Flow {
    /// Counts a dispatched request.
    pub fn count_dispatched(&self) {
        if let Some(dispatched) = &self.dispatched {
            dispatched.inc();
        }
    }
}

impl Default for FlowSchemas {
    fn default() -> Self {
        Self::new()
    }
}

fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(object.str_at(&["metadata", "uid"])).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests;
