//! Selects the kinds that a policy is checked against: those of the resources that its rules list without
//! wildcards (upstream's `typesToCheck` in `policy/validating/typechecking.go`).

use crate::apimachinery::value::{Str, Value};
use crate::controllers::discovery::AGGREGATED;
use crate::controllers::loopback::{Failure, Loopback};
use crate::interrupt::checkpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Once a rule has this many kinds, further kinds and rules are not checked (`maxTypesToCheck`).
const MAX_KINDS: usize = 10;

/// A kind in a version, in upstream's order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Gvk {
    pub group: Str,
    pub version: Str,
    pub kind: Str,
}

impl Gvk {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// The path of the OpenAPI document that describes it.
    pub(super) fn document(&self) -> String {
        match self.group.as_str() {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

/// As Go prints it: `/v1, Kind=Pod`.
impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource in a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Served {
    plural: Str,
    singular: Str,
    kind: Gvk,
}

/// Reads what is served now.
///
/// # Errors
/// The gateway itself does not answer.
pub(super) async fn discover(api: &Loopback) -> Result<Vec<Served>, Failure> {
    let mut all = Vec::new();
    for path in ["/api", "/apis"] {
        // There may be thousands of resources.
        let more = move |document: Value| {
            add(&mut all, &document);
            all
        };
        all = api.extract(path, AGGREGATED, more).await?;
    }
    Ok(all)
}

fn add(all: &mut Vec<Served>, document: &Value) {
    for group in document.get("items").items() {
        let name = group.str_at(&["metadata", "name"]);
        for version in group.get("versions").items() {
            for resource in version.get("resources").items() {
                let kind = resource.str_at(&["responseKind", "kind"]);
                all.push(Served {
                    plural: resource.str_at(&["resource"]).into(),
                    singular: resource.str_at(&["singularResource"]).into(),
                    kind: Gvk::new(name, version.str_at(&["version"]), kind),
                });
            }
        }
    }
}

/// The kind of a policy's parameters, if it has one.
pub(super) fn of_params(policy: &Value) -> Option<Gvk> {
    let params = policy.at(&["spec", "paramKind"]);
    let api_version = params.str_at(&["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (!params.is_null()).then(|| Gvk::new(group, version, params.str_at(&["kind"])))
}

/// The kinds that a policy is checked against, in order.
pub(super) fn to_check(policy: &Value, served: &[Served]) -> BTreeSet<Gvk> {
    let mut kinds = BTreeSet::new();
    for rule in policy.at(&["spec", "matchConstraints", "resourceRules"]).items() {
        checkpoint();
        if let Some(rule) = Rule::of(rule) {
            let found = rule.kinds(served);
            let count = found.len();
            kinds.extend(found.into_iter().take(MAX_KINDS).cloned());
            if count >= MAX_KINDS {
                break;
            }
        }
    }
    kinds
}

/// The names in a rule, each with its place in the order of the search.
struct Rule<'a> {
    groups: BTreeMap<&'a str, usize>,
    versions: BTreeMap<&'a str, usize>,
    /// In lower case, by which several names may be the same.
    resources: BTreeMap<String, Vec<usize>>,
}

impl<'a> Rule<'a> {
    /// `None` if the groups or versions have a wildcard.
    fn of(rule: &'a Value) -> Option<Self> {
        let list =
            |key: &str| -> BTreeSet<&'a str> { rule.get(key).items().iter().filter_map(Value::as_str).collect() };
        let numbered = |all: BTreeSet<&'a str>| all.into_iter().enumerate().map(|(i, name)| (name, i)).collect();
        let (groups, versions) = (list("apiGroups"), list("apiVersions"));
        // Upstream does not guess which of many kinds such a rule is written for.
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            return None;
        }
        let mut resources: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        // Subresources have types of their own, which upstream does not check either.
        let named = list("resources").into_iter().filter(|r| !r.contains(['*', '/']));
        for (i, resource) in named.enumerate() {
            resources.entry(resource.to_lowercase()).or_default().push(i);
        }
        Some(Self {
            groups: numbered(groups),
            versions: numbered(versions),
            resources,
        })
    }

    /// The kinds that it names: by group, version and resource, then as they are served. A rule may have tens of
    /// thousands of each name, so what is served is looked up in it, and not the other way round.
    fn kinds<'s>(&self, served: &'s [Served]) -> Vec<&'s Gvk> {
        let mut found = Vec::new();
        for (at, of) in served.iter().enumerate() {
            // The most selective check first.
            let Some(version) = self.versions.get(of.kind.version.as_str()) else {
                continue;
            };
            // Upstream's RESTMapper takes the name of the core group for any group.
            let own = Some(of.kind.group.as_str()).filter(|group| !group.is_empty());
            let groups = [Some(""), own].into_iter().flatten();
            let groups: Vec<usize> = groups.filter_map(|group| self.groups.get(group).copied()).collect();
            let singular = Some(&of.singular).filter(|singular| **singular != of.plural);
            for name in [Some(&of.plural), singular].into_iter().flatten() {
                let resources = self.resources.get(name.as_str()).into_iter().flatten();
                for resource in resources {
                    found.extend(groups.iter().map(|group| (*group, *version, *resource, at)));
                }
            }
        }
        // Upstream's order of search, on which the cut after ten kinds depends.
        found.sort_unstable();
        found.into_iter().map(|(_, _, _, at)| &served[at].kind).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn served() -> Vec<Served> {
        let resource = |plural: &str, singular: &str, kind: &str| json!({"resource": plural, "singularResource": singular, "responseKind": {"group": "", "version": "v1", "kind": kind}});
        let many: Vec<Value> = (0..12)
            .map(|i| resource(&format!("k{i:02}s"), "", &format!("K{i:02}")))
            .collect();
        let document = json!({"items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                (resource("pods", "pod", "Pod")), (resource("events", "event", "Event"))]}]},
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                (resource("deployments", "deployment", "Deployment"))]}]},
            {"metadata": {"name": "events.k8s.io"}, "versions": [{"version": "v1", "resources": [
                (resource("events", "event", "Event"))]}]},
            {"metadata": {"name": "many.io"}, "versions": [{"version": "v1", "resources": (many)}]}]});
        let mut all = Vec::new();
        add(&mut all, &document);
        all
    }

    fn checked(rules: &[(&str, &str, &[&str])]) -> Vec<String> {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(group, version, resources)| {
                let resources: Vec<Value> = resources.iter().map(|r| (*r).into()).collect();
                json!({"apiGroups": [(*group)], "apiVersions": [(*version)], "resources": (resources)})
            })
            .collect();
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": (rules)}}});
        to_check(&policy, &served()).iter().map(Gvk::to_string).collect()
    }

    #[test]
    fn rules_are_checked_for_the_kinds_that_they_name() {
        let of = |group, version, resource| checked(&[(group, version, &[resource])]);
        assert_eq!(of("apps", "v1", "deployments"), ["apps/v1, Kind=Deployment"]);
        assert_eq!(of("apps", "v1", "Deployment"), ["apps/v1, Kind=Deployment"]);
        assert_eq!(
            of("", "v1", "events"),
            ["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"]
        );
        for nothing in [
            ("*", "v1", "pods"),
            ("apps", "*", "deployments"),
            ("apps", "v1", "*"),
            ("apps", "v1", "deployments/scale"),
            ("apps", "v2", "deployments"),
            ("apps", "v1", "pods"),
        ] {
            assert!(of(nothing.0, nothing.1, nothing.2).is_empty(), "{nothing:?}");
        }
        assert_eq!(
            checked(&[
                ("apps", "v1", &["deployments"]),
                ("", "v1", &["pods"]),
                ("*", "v1", &["pods"])
            ]),
            ["/v1, Kind=Pod", "apps/v1, Kind=Deployment"]
        );
    }

    #[test]
    fn a_rule_is_checked_for_at_most_ten_kinds() {
        let names: Vec<String> = (0..12).map(|i| format!("k{i:02}s")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = checked(&[("many.io", "v1", &names), ("", "v1", &["pods"])]);
        assert_eq!(found.len(), 10);
        assert_eq!(found[9], "many.io/v1, Kind=K09");
    }

    #[test]
    fn parameters_have_the_kind_of_the_policy() {
        let of = |params: Value| of_params(&json!({"spec": {"paramKind": (params)}})).map(|k| k.to_string());
        assert_eq!(of(Value::Null), None);
        assert_eq!(
            of(json!({"apiVersion": "v1", "kind": "ConfigMap"})).as_deref(),
            Some("/v1, Kind=ConfigMap")
        );
        assert_eq!(
            of(json!({"apiVersion": "a.io/v2", "kind": "P"})).as_deref(),
            Some("a.io/v2, Kind=P")
        );
    }

    /// With a search for each group, version and resource, this takes years.
    #[test]
    fn rules_with_many_names_take_linear_time() {
        let names: Vec<String> = (0..50_000).map(|i| format!("n{i}")).collect();
        let all = |last: &str| -> Vec<Value> { names.iter().map(|n| n.as_str().into()).chain([last.into()]).collect() };
        let rule = json!({"apiGroups": (all("apps")), "apiVersions": (all("v1")), "resources": (all("deployments"))});
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": [(rule)]}}});
        let kinds: Vec<String> = to_check(&policy, &served()).iter().map(Gvk::to_string).collect();
        assert_eq!(kinds, ["apps/v1, Kind=Deployment"]);
    }
}
