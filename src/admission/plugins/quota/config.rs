//! `ResourceQuotaConfiguration` in the `--admission-control-config-file`: resources that may be used only if
//! a quota covers them.

use super::scopes::Selector;
use crate::apimachinery::value::Value;

/// A resource that requires a covering quota.
#[derive(Clone, Debug)]
pub(crate) struct LimitedResource {
    /// Group of the written object.
    pub group: String,
    /// Plural of the written object.
    pub resource: String,
    /// Substrings of the quota resource names that must be covered.
    pub contains: Vec<String>,
    /// Scopes that must be covered.
    pub(super) scopes: Vec<Selector>,
}

/// The ResourceQuota plugin's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaConfig {
    /// Resources limited by default.
    pub limited: Vec<LimitedResource>,
}

impl QuotaConfig {
    /// Parses the configuration object.
    pub(crate) fn parse(configuration: &Value) -> Self {
        let limited = configuration.get("limitedResources").items().iter();
        let limited = limited.map(|item| {
            let contains = item.get("matchContains").items().iter();
            LimitedResource {
                group: item.str_at(&["apiGroup"]).to_owned(),
                resource: item.str_at(&["resource"]).to_owned(),
                contains: contains.filter_map(Value::as_str).map(str::to_owned).collect(),
                scopes: item.get("matchScopes").items().iter().map(Selector::of).collect(),
            }
        });
        Self {
            limited: limited.collect(),
        }
    }
}
