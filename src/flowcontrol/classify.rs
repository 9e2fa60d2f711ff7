//! Which FlowSchema a request matches, and which PriorityLevelConfiguration that leads to
//! (upstream's `k8s.io/apiserver/pkg/util/flowcontrol/rule.go`). Clients see both uids in headers.
//!
//! The objects come from the store: whoever watches them calls [`FlowSchemas::replace`], and a request reads a snapshot.

mod rule;

use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use arc_swap::ArcSwap;
use http::HeaderValue;
use prometheus::{IntCounter, IntCounterVec};
use rule::Rules;
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the schema that takes what no other takes.
const CATCH_ALL: &str = "catch-all";

/// What a request was classified as; uids are empty for objects that do not exist and are imagined.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The schema's uid.
    pub schema_uid: HeaderValue,
    /// The level's uid.
    pub level_uid: HeaderValue,
    /// Requests of it that were let through, where somebody counts.
    dispatched: Option<IntCounter>,
}

struct Schema {
    precedence: i64,
    name: String,
    rules: Rules,
    flow: Flow,
}

/// The schemas of this moment.
pub struct FlowSchemas {
    sorted: ArcSwap<Vec<Schema>>,
    imagined: Flow,
    dispatched: Option<IntCounterVec>,
}

impl FlowSchemas {
    /// No schema yet: everything is the imagined catch-all.
    pub fn new() -> Self {
        Self {
            sorted: ArcSwap::default(),
            imagined: Flow {
                schema_uid: HeaderValue::from_static(""),
                level_uid: HeaderValue::from_static(""),
                dispatched: None,
            },
            dispatched: None,
        }
    }

    /// Counts what is let through in `family`, whose labels are the names of a schema and its level.
    #[must_use]
    pub fn counting(mut self, family: IntCounterVec) -> Self {
        self.imagined.dispatched = Some(family.with_label_values(&[CATCH_ALL, CATCH_ALL]));
        self.dispatched = Some(family);
        self
    }

    /// Takes these FlowSchemas and PriorityLevelConfigurations in place of those before. A schema whose level does not
    /// exist is left out.
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

    /// The flow of a request: of the schemas that match, the one of the lowest precedence number, then name.
    pub fn classify(&self, user: &UserInfo, info: &RequestInfo) -> Flow {
        let sorted = self.sorted.load();
        let found = sorted.iter().find(|s| s.rules.matches(user, info));
        found
            .or_else(|| sorted.iter().find(|s| s.name == CATCH_ALL))
            .map_or_else(|| self.imagined.clone(), |s| s.flow.clone())
    }
}

impl Flow {
    /// A request of this flow is let through.
    pub fn dispatch(&self) {
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
