//! The rules of a FlowSchema, indexed once per change of the object. They match as in upstream's
//! `pkg/util/flowcontrol/rule.go`; [`classify`](super::classify) orders the schemas. Entry point: [`Rules`].
//!
//! The resource and non-resource rules of all rules (policies) are numbered. A request looks up the policies of its
//! caller, verb, group, resource and so on, and matches if one is in all of these sets: requests are classified on the
//! reactor, and a schema may have tens of thousands of subjects or policies.

use super::bits::{self, Cursor, Policies, Table};
use super::paths::Paths;
use crate::apimachinery::value::Value;
use crate::request::{RequestInfo, UserInfo};
use std::ops::Range;

/// Words of a set up to which a request is matched without an allocation. Schemas have hundreds of policies at most,
/// but for hostile ones.
const FEW: usize = 8;

/// Matches if any of the rules matches.
pub(crate) struct Rules {
    subjects: Subjects,
    verbs: Matcher,
    groups: Matcher,
    resources: Matcher,
    namespaces: Matcher,
    cluster_scope: Policies,
    any_path: Policies,
    paths: Paths,
    /// Number of policies.
    policies: u32,
}

/// The policies of the rules of each subject.
struct Subjects {
    everyone: Policies,
    users: Table,
    groups: Table,
    /// By `namespace:name`.
    accounts: Table,
    /// Those of all service accounts of a namespace.
    namespaces: Table,
}

/// The policies that have a word, or the wildcard `*`, in one of their lists.
struct Matcher {
    any: Policies,
    of: Table,
}

/// Reads the union of two sets.
struct Union<'a>(Cursor<'a>, Cursor<'a>);

/// The words of one list of all policies, or of one kind of subject of all rules.
#[derive(Default)]
struct Words<'a> {
    any: Vec<Range<u32>>,
    of: Vec<(&'a str, Range<u32>)>,
}

/// What is collected from the policies.
#[derive(Default)]
struct Lists<'a> {
    verbs: Words<'a>,
    groups: Words<'a>,
    resources: Words<'a>,
    namespaces: Words<'a>,
    paths: Words<'a>,
    cluster_scope: Vec<Range<u32>>,
    policies: u32,
}

/// What is collected from the subjects.
#[derive(Default)]
struct SubjectLists<'a> {
    everyone: Vec<Range<u32>>,
    users: Vec<(&'a str, Range<u32>)>,
    groups: Vec<(&'a str, Range<u32>)>,
    accounts: Vec<(String, Range<u32>)>,
    namespaces: Vec<(&'a str, Range<u32>)>,
}

// === impl Rules ===

impl Rules {
    /// Indexes the rules of an object, which may have megabytes.
    pub(crate) fn of(schema: &Value) -> Self {
        let mut lists = Lists::default();
        let mut subjects = SubjectLists::default();
        for rule in schema.at(&["spec", "rules"]).items() {
            let first = lists.policies;
            for policy in rule.get("resourceRules").items() {
                lists.add_resources(policy);
            }
            for policy in rule.get("nonResourceRules").items() {
                lists.add_paths(policy);
            }
            // A rule needs both: its subjects apply to all its resource and path rules.
            for subject in rule.get("subjects").items() {
                subjects.add(subject, &(first..lists.policies));
            }
        }
        Self {
            subjects: subjects.index(),
            verbs: lists.verbs.index(),
            groups: lists.groups.index(),
            resources: lists.resources.index(),
            namespaces: lists.namespaces.index(),
            cluster_scope: Policies::of(lists.cluster_scope),
            any_path: Policies::of(lists.paths.any),
            paths: Paths::of(lists.paths.of),
            policies: lists.policies,
        }
    }

    pub(super) fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        let words = bits::words(self.policies);
        if words <= FEW {
            return self.matches_in(user, info, &mut [0; FEW][..words], &mut [0; FEW][..words]);
        }
        self.matches_in(user, info, &mut vec![0; words], &mut vec![0; words])
    }

    /// As [`matches`](Self::matches). Both sets are empty, with a word for each 64 policies.
    fn matches_in(&self, user: &UserInfo, info: &RequestInfo, callers: &mut [u64], reached: &mut [u64]) -> bool {
        self.subjects.collect(user, callers);
        // The most common outcome.
        if callers.iter().all(|word| *word == 0) {
            return false;
        }
        let verb = self.verbs.having(&info.verb);
        if !info.is_resource {
            // United first: a path may be below thousands of URLs, and a comparison for each would take milliseconds.
            self.any_path.add_to(reached);
            self.paths.matching(&info.path, |policies| policies.add_to(reached));
            for (word, reached) in callers.iter_mut().zip(reached) {
                *word &= *reached;
            }
            return intersect(callers, [verb]);
        }
        // Requests without a namespace need `clusterScope`, even if the rule has all namespaces.
        let scope = if info.namespace.is_empty() {
            Union::of(&self.cluster_scope)
        } else {
            self.namespaces.having(&info.namespace)
        };
        let groups = self.groups.having(&info.api_group);
        let resources = self.resources.having_resource(&info.resource, &info.subresource);
        intersect(callers, [verb, groups, resources, scope])
    }
}

/// Whether one policy is in all sets.
fn intersect<const N: usize>(callers: &[u64], mut sets: [Union<'_>; N]) -> bool {
    (0u32..).zip(callers).any(|(number, word)| {
        // Empty words are skipped: the sets catch up.
        *word != 0 && sets.iter_mut().fold(*word, |bits, set| bits & set.word(number)) != 0
    })
}

// === impl Union ===

impl<'a> Union<'a> {
    fn of(policies: &'a Policies) -> Self {
        Self(policies.cursor(), Cursor::default())
    }

    fn word(&mut self, number: u32) -> u64 {
        self.0.word(number) | self.1.word(number)
    }
}

// === impl Matcher ===

impl Matcher {
    fn having(&self, word: &str) -> Union<'_> {
        self.with(self.of.get(word))
    }

    /// Matches entries `pods` for a resource, and `pods/log` for a subresource.
    fn having_resource(&self, resource: &str, subresource: &str) -> Union<'_> {
        if subresource.is_empty() {
            return self.having(resource);
        }
        // Compared in parts instead of concatenating both names, which would allocate for every request.
        let wanted = || resource.bytes().chain([b'/']).chain(subresource.bytes());
        self.with(self.of.find(|known| known.bytes().cmp(wanted())))
    }

    fn with<'a>(&'a self, found: Option<&'a Policies>) -> Union<'a> {
        Union(self.any.cursor(), found.map(Policies::cursor).unwrap_or_default())
    }
}

// === impl Subjects ===

impl Subjects {
    /// Adds the policies of the rules that apply to a user.
    fn collect(&self, user: &UserInfo, union: &mut [u64]) {
        self.everyone.add_to(union);
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        // By name, as upstream: tokens and certificates of a service account classify alike.
        let account = user.name.strip_prefix("system:serviceaccount:");
        let namespace = account.and_then(|account| account.split_once(':')).map(|(ns, _)| ns);
        self.users
            .get(&user.name)
            .into_iter()
            .chain(groups)
            .chain(account.and_then(|account| self.accounts.get(account)))
            .chain(namespace.and_then(|namespace| self.namespaces.get(namespace)))
            .for_each(|policies| policies.add_to(union));
    }
}

// === impl Words ===

impl<'a> Words<'a> {
    fn add(&mut self, list: &'a Value, policy: &Range<u32>) {
        let words = list.items().iter().filter_map(Value::as_str);
        // The wildcard counts anywhere in the list, not only as its single entry.
        if words.clone().any(|word| word == "*") {
            self.any.push(policy.clone());
        } else {
            self.of.extend(words.map(|word| (word, policy.clone())));
        }
    }

    fn index(self) -> Matcher {
        Matcher {
            any: Policies::of(self.any),
            of: Table::of(self.of),
        }
    }
}

// === impl Lists ===

impl<'a> Lists<'a> {
    fn add_resources(&mut self, policy: &'a Value) {
        let number = self.number();
        self.verbs.add(policy.get("verbs"), &number);
        self.groups.add(policy.get("apiGroups"), &number);
        self.resources.add(policy.get("resources"), &number);
        self.namespaces.add(policy.get("namespaces"), &number);
        if policy.get("clusterScope").as_bool().unwrap_or(false) {
            self.cluster_scope.push(number);
        }
    }

    fn add_paths(&mut self, policy: &'a Value) {
        let number = self.number();
        self.verbs.add(policy.get("verbs"), &number);
        self.paths.add(policy.get("nonResourceURLs"), &number);
    }

    /// The next policy.
    fn number(&mut self) -> Range<u32> {
        let first = self.policies;
        self.policies += 1;
        first..self.policies
    }
}

// === impl SubjectLists ===

impl<'a> SubjectLists<'a> {
    fn add(&mut self, subject: &'a Value, policies: &Range<u32>) {
        let policies = policies.clone();
        match subject.str_at(&["kind"]) {
            "User" => self.add_name(subject.str_at(&["user", "name"]), policies, |lists| &mut lists.users),
            "Group" => self.add_name(subject.str_at(&["group", "name"]), policies, |lists| &mut lists.groups),
            "ServiceAccount" => {
                let name = subject.str_at(&["serviceAccount", "name"]);
                let namespace = subject.str_at(&["serviceAccount", "namespace"]);
                // The name of a user is split at its first colon, so that no namespace has one.
                if namespace.contains(':') {
                    return;
                }
                if name == "*" {
                    self.namespaces.push((namespace, policies));
                } else {
                    self.accounts.push((format!("{namespace}:{name}"), policies));
                }
            }
            // An unknown kind matches nobody. Dropping it keeps the rest of the rule.
            _ => {}
        }
    }

    fn add_name(
        &mut self,
        name: &'a str,
        policies: Range<u32>,
        list: fn(&mut Self) -> &mut Vec<(&'a str, Range<u32>)>,
    ) {
        if name == "*" {
            self.everyone.push(policies);
        } else {
            list(self).push((name, policies));
        }
    }

    fn index(mut self) -> Subjects {
        // A rule may have the wildcard several times, and its policies are a set.
        self.everyone.dedup();
        let accounts = self.accounts.iter().map(|(name, range)| (name.as_str(), range.clone()));
        Subjects {
            everyone: Policies::of(self.everyone),
            users: Table::of(self.users),
            groups: Table::of(self.groups),
            accounts: Table::of(accounts.collect()),
            namespaces: Table::of(self.namespaces),
        }
    }
}
