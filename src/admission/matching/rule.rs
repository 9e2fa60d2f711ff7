//! One rule of a webhook or policy: operations, groups, versions, resources and scope (upstream's
//! `admission/plugin/webhook/predicates/rules`).

use crate::admission::{Attributes, Operation};
use crate::apimachinery::gvk::GroupVersionResource;
use crate::apimachinery::value::{Str, Value};

const ANY: &str = "*";

/// A parsed `RuleWithOperations` or `NamedRuleWithOperations`.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    operations: Operations,
    groups: Names,
    versions: Names,
    /// Pairs of a plural and a subresource.
    resources: Box<[(Name, Name)]>,
    scope: Scope,
    /// `resourceNames` of policies; empty for all.
    names: Box<[Str]>,
}

/// A set of operations, one bit each.
#[derive(Clone, Copy, Debug)]
// Bits, because this is compared first, for every rule and write.
struct Operations(u8);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Any,
    Only(Str),
}

#[derive(Clone, Debug)]
enum Names {
    Any,
    Listed(Box<[Str]>),
}

#[derive(Clone, Copy, Debug)]
enum Scope {
    Any,
    Cluster,
    Namespaced,
    /// An unknown value matches nothing.
    Unknown,
}

impl Rule {
    /// Reads a valid rule.
    pub(crate) fn parse(rule: &Value) -> Self {
        let resources = rule.get("resources").items().iter().filter_map(Value::as_str);
        Self {
            operations: Operations::parse(rule.get("operations")),
            groups: Names::parse(rule.get("apiGroups")),
            versions: Names::parse(rule.get("apiVersions")),
            resources: resources
                // `pods` means the resource without its subresources, hence the empty name.
                .map(|r| r.split_once('/').unwrap_or((r, "")))
                .map(|(plural, sub)| (Name::parse(plural), Name::parse(sub)))
                .collect(),
            scope: match rule.get("scope").as_str() {
                None | Some(ANY) => Scope::Any,
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                Some(_) => Scope::Unknown,
            },
            names: strings(rule.get("resourceNames")),
        }
    }

    /// True if the rule matches this write when its resource is taken to be `resource`, which is that of the
    /// request or an equivalent one.
    pub(crate) fn matches(&self, attributes: &Attributes, resource: &GroupVersionResource) -> bool {
        self.operations.has(attributes.operation)
            && self.resources.iter().any(|(plural, sub)| {
                // `pods/*` includes `pods`: the wildcard also stands for no subresource.
                plural.matches(&resource.resource) && sub.matches(&attributes.subresource)
            })
            && self.groups.has(&resource.group)
            && self.versions.has(&resource.version)
            && self.scope.matches(attributes, resource)
            // A create with `generateName` has no name yet, so it matches no list of names.
            && (self.names.is_empty() || self.names.iter().any(|n| *n == attributes.name))
    }

    /// True if the rule is for this operation.
    pub(crate) fn has_operation(&self, operation: Operation) -> bool {
        self.operations.has(operation)
    }

    /// The plurals that the rule can match; `None` if that is any.
    pub(crate) fn plurals(&self) -> Option<impl Iterator<Item = &Str>> {
        let any = self.resources.iter().any(|(plural, _)| *plural == Name::Any);
        let only = self.resources.iter().filter_map(|(plural, _)| match plural {
            Name::Only(name) => Some(name),
            Name::Any => None,
        });
        (!any).then_some(only)
    }
}

impl Operations {
    fn parse(list: &Value) -> Self {
        let bits = list.items().iter().map(|o| match o.as_str() {
            Some(ANY) => u8::MAX,
            Some("CREATE") => Self::bit(Operation::Create),
            Some("UPDATE") => Self::bit(Operation::Update),
            Some("DELETE") => Self::bit(Operation::Delete),
            Some("CONNECT") => Self::bit(Operation::Connect),
            // An unknown operation matches nothing.
            _ => 0,
        });
        Self(bits.fold(0, |all, bit| all | bit))
    }

    const fn bit(operation: Operation) -> u8 {
        // Four variants, so the bit fits.
        1 << operation as u8
    }

    const fn has(self, operation: Operation) -> bool {
        self.0 & Self::bit(operation) != 0
    }
}

impl Name {
    fn parse(text: &str) -> Self {
        match text {
            ANY => Self::Any,
            name => Self::Only(name.into()),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(only) => *only == name,
        }
    }
}

impl Names {
    fn parse(list: &Value) -> Self {
        let any = list.items().iter().any(|n| n.as_str() == Some(ANY));
        match any {
            true => Self::Any,
            false => Self::Listed(strings(list)),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(all) => all.iter().any(|n| *n == name),
        }
    }
}

impl Scope {
    /// A request for a namespace carries its name as namespace, but is cluster-scoped.
    fn matches(self, attributes: &Attributes, resource: &GroupVersionResource) -> bool {
        // Exactly v1, as upstream's `Matcher.scope`.
        let is_namespace = (&*resource.group, &*resource.version, &*resource.resource) == ("", "v1", "namespaces");
        let cluster = is_namespace || attributes.namespace.is_empty();
        match self {
            Self::Any => true,
            Self::Cluster => cluster,
            Self::Namespaced => !cluster,
            Self::Unknown => false,
        }
    }
}

fn strings(list: &Value) -> Box<[Str]> {
    list.items().iter().filter_map(Value::as_str).map(Str::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::request;
    use crate::json;

    fn matches(rule: &Value, attributes: &Attributes) -> bool {
        Rule::parse(rule).matches(attributes, &attributes.resource)
    }

    /// A rule for everything with one member replaced.
    fn rule(member: &str, value: Value) -> Value {
        let mut rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
        rule.set(&[member], value);
        rule
    }

    #[test]
    fn wildcards_in_resources_match_as_upstream() {
        let pod = request(Operation::Create, "", "pods", "p");
        let status = request(Operation::Update, "", "pods/status", "p");
        let scale = request(Operation::Update, "apps", "deployments/scale", "d");
        for (resource, of_pod, of_status, of_scale) in [
            ("pods", true, false, false),
            ("pods/*", true, true, false),
            ("pods/status", false, true, false),
            ("*", true, false, false),
            ("*/scale", false, false, true),
            ("*/*", true, true, true),
        ] {
            let rule = rule("resources", json!([resource]));
            let got = [&pod, &status, &scale].map(|a| matches(&rule, a));
            assert_eq!(got, [of_pod, of_status, of_scale], "{resource}");
        }
    }

    #[test]
    fn operations_groups_and_versions_must_be_listed() {
        let create = request(Operation::Create, "apps", "deployments", "d");
        for (member, value, expected) in [
            ("operations", json!(["UPDATE", "DELETE"]), false),
            ("operations", json!(["UPDATE", "CREATE"]), true),
            ("apiGroups", json!(["", "batch"]), false),
            ("apiGroups", json!(["batch", "apps"]), true),
            ("apiVersions", json!(["v1beta1"]), false),
            ("apiVersions", json!(["v1"]), true),
            ("resourceNames", json!(["x"]), false),
            ("resourceNames", json!(["x", "d"]), true),
        ] {
            assert_eq!(
                matches(&rule(member, value.clone()), &create),
                expected,
                "{member} {value:?}"
            );
        }
    }

    #[test]
    fn namespaces_are_cluster_scoped_although_they_carry_a_namespace() {
        let namespaced = request(Operation::Create, "", "pods", "p");
        let cluster = Attributes {
            namespace: String::new(),
            ..request(Operation::Create, "", "nodes", "n")
        };
        let namespace = request(Operation::Update, "", "namespaces", "ns");
        for (scope, expected) in [
            ("*", [true, true, true]),
            ("Cluster", [false, true, true]),
            ("Namespaced", [true, false, false]),
            ("", [false, false, false]),
        ] {
            let rule = rule("scope", json!(scope));
            assert_eq!(
                [&namespaced, &cluster, &namespace].map(|a| matches(&rule, a)),
                expected,
                "{scope}"
            );
        }
    }

    #[test]
    fn plurals_are_known_unless_a_wildcard_stands_for_them() {
        let of = |list: Value| {
            let rule = Rule::parse(&rule("resources", list));
            rule.plurals()
                .map(|all| all.map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            of(json!(["pods/*", "nodes"])),
            Some(vec!["pods".to_owned(), "nodes".to_owned()])
        );
        assert_eq!(of(json!(["pods", "*/scale"])), None);
    }
}
