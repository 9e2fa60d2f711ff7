//! `ResourceQuotaConfiguration` of the `--admission-control-config-file`: what may only be used where a quota covers
//! it.

use super::scopes::Selector;
use crate::apimachinery::value::Value;

/// Something that is limited where no quota is, too.
#[derive(Clone, Debug)]
pub struct LimitedResource {
    /// The group of what is written.
    pub group: String,
    /// The plural of what is written.
    pub resource: String,
    /// Texts in the names of resources that a quota must cover.
    pub contains: Vec<String>,
    /// Scopes that a quota must cover.
    pub(super) scopes: Vec<Selector>,
}

/// The plugin's configuration.
#[derive(Clone, Debug, Default)]
pub struct QuotaConfig {
    /// What is limited by default.
    pub limited: Vec<LimitedResource>,
}

impl QuotaConfig {
    /// Reads the configuration object.
    pub fn parse(configuration: &Value) -> Self {
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
