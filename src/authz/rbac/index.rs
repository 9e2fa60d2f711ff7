//! The RBAC index: bindings by subject. A lookup goes scope (a namespace, or the cluster) → user or group →
//! bindings. Entry point: [`Index::find`].
//!
//! An index is immutable and consists of persistent maps, so a change copies a few nodes and does not disturb
//! readers. A changed role is one entry, however many subjects are bound to it: the resolved roles of a
//! subject carry the role version they were resolved with, and are revalidated by the next decision that uses
//! them.

use super::bindings::Bindings;
use super::objects::{Binding, Role, Target};
use super::postings::{BudgetExhausted, StepBudget};
use super::resolved::{BoundSubject, MAX_DANGLING, Merged, Resolved};
use super::rule::PolicyRule;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use crate::request::UserInfo;
use arc_swap::ArcSwapOption;
use imbl::{HashMap, OrdMap};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of the rules listed for one caller, in bytes. Keeps a SelfSubjectRulesReview, which anyone
/// may create, from exhausting memory.
const MAX_LISTED: usize = 4 << 20;

/// A snapshot of all roles and bindings.
#[derive(Clone, Default)]
pub(crate) struct Index {
    /// By name (ClusterRole) or `namespace/name` (Role).
    roles: HashMap<Str, Arc<Role>>,
    /// Changes whenever a role is added, changed or removed.
    roles_version: u64,
    /// By name (ClusterRoleBinding) or `namespace/name` (RoleBinding).
    bindings: OrdMap<Str, Arc<Binding>>,
    /// By namespace; `""` is cluster scope.
    scopes: HashMap<Str, Arc<Scope>>,
    /// Total size of the merged tables of all subjects.
    merged: Merged,
}

#[derive(Clone, Default)]
struct Scope {
    users: HashMap<Str, Arc<Bucket>>,
    groups: HashMap<Str, Arc<Bucket>>,
}

/// The bindings of one subject in one scope, with their roles resolved on first use.
struct Bucket {
    bindings: Bindings,
    resolved: ArcSwapOption<Resolved>,
}

/// The binding and role that allow a request.
pub(crate) struct Grant {
    pub binding: Arc<Binding>,
    /// Index of the matching subject in the binding.
    pub subject: usize,
}

/// The rules granted to a user.
#[derive(Default)]
pub(crate) struct RuleList {
    /// The rules, in evaluation order.
    pub rules: Vec<PolicyRule>,
    /// Bindings that could not be resolved.
    pub errors: Vec<String>,
    /// True if the list was truncated for size.
    pub cut: bool,
}

/// The bindings of one scope after a change, for [`Index::set_scope`].
pub(super) struct ChangedScope {
    namespace: Str,
    scope: Scope,
    /// Key of the binding that changed.
    key: Str,
    binding: Option<Arc<Binding>>,
}

/// A binding that applies to a user.
pub(crate) struct ApplicableBinding {
    pub binding: Arc<Binding>,
    /// Index of the matching subject in the binding.
    pub subject: usize,
    /// The role; `None` if it does not exist.
    pub role: Option<Arc<Role>>,
}

// === impl Index ===

impl Index {
    /// Sets or removes (`None`) a role. The key is its name, prefixed with `namespace/` for a Role.
    pub(crate) fn set_role(&mut self, key: &str, role: Option<Arc<Role>>) {
        // Process-wide, so that copies of an index that diverge never share a version.
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        match role {
            Some(role) => self.roles.insert(key.into(), role),
            None => self.roles.remove(key),
        };
        // Relaxed: only uniqueness matters; the index is published by its atomic swap.
        self.roles_version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Sets or removes (`None`) a binding. The cost is proportional to its number of subjects.
    pub(crate) fn set_binding(&mut self, key: &str, binding: Option<Arc<Binding>>) {
        self.set_scope(self.with_binding(key, binding));
    }

    /// The scope of a binding after that is set or removed (`None`). The cost is proportional to its number of
    /// subjects.
    pub(super) fn with_binding(&self, key: &str, binding: Option<Arc<Binding>>) -> ChangedScope {
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let mut scope = self.scopes.get(namespace).map(|s| Scope::clone(s)).unwrap_or_default();
        // The old subjects first: a subject that both versions have must end up in the index.
        if let Some(old) = self.bindings.get(key) {
            scope.edit(old, |bindings, _| bindings?.without(&old.name));
        }
        if let Some(new) = &binding {
            let role = new.role_key();
            // `edit` goes from last to first: if several subjects are the same user, the first one remains.
            scope.edit(new, |bindings, subject| {
                let grant = BoundSubject {
                    binding: new.clone(),
                    subject,
                    role: role.clone(),
                };
                Some(Bindings::with(bindings, grant))
            });
        }
        ChangedScope {
            namespace: namespace.into(),
            scope,
            key: key.into(),
            binding,
        }
    }

    /// Replaces the original scope by the changed one. Takes a short time for a change of any size.
    pub(super) fn set_scope(&mut self, changed: ChangedScope) {
        match changed.binding {
            Some(new) => self.bindings.insert(changed.key, new),
            None => self.bindings.remove(changed.key.as_str()),
        };
        if changed.scope.is_empty() {
            self.scopes.remove(&changed.namespace);
        } else {
            self.scopes.insert(changed.namespace, Arc::new(changed.scope));
        }
    }

    /// The role with this key.
    pub(crate) fn role(&self, key: &str) -> Option<&Arc<Role>> {
        self.roles.get(key)
    }

    /// The role that a binding refers to.
    pub(crate) fn role_of(&self, binding: &Binding) -> Option<&Arc<Role>> {
        self.roles.get(&binding.role_key()?)
    }

    /// The numbers of roles and bindings.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.roles.len(), self.bindings.len())
    }

    /// The first binding that allows the request: cluster bindings first, then those of the namespace, each
    /// by name.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the decision exceeds the step budget.
    pub(crate) fn find(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Option<Grant>, BudgetExhausted> {
        for scope in self.scopes_of(attributes.namespace) {
            let mut best: Option<Grant> = None;
            for bucket in scope.buckets(attributes.user) {
                let resolved = bucket.resolved(self, steps)?;
                let Some((grant, _)) = resolved.find(attributes, steps)? else {
                    continue;
                };
                // The buckets of a caller are unordered among each other. Upstream visits bindings by name,
                // and the reason names the first that allows.
                let before = |best: &Grant| (&grant.binding.name, grant.subject) < (&best.binding.name, best.subject);
                if best.as_ref().is_none_or(before) {
                    best = Some(Grant {
                        binding: grant.binding.clone(),
                        subject: grant.subject,
                    });
                }
            }
            if best.is_some() {
                return Ok(best);
            }
        }
        Ok(None)
    }

    /// Describes bindings of the caller that refer to missing roles. The first few are named, the rest
    /// counted.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if it exceeds the step budget.
    pub(crate) fn dangling(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Vec<String>, BudgetExhausted> {
        let mut out: Vec<String> = Vec::new();
        let mut more = 0;
        for scope in self.scopes_of(attributes.namespace) {
            for bucket in scope.buckets(attributes.user) {
                let resolved = bucket.resolved(self, steps)?;
                more += resolved.more_dangling;
                for text in &resolved.dangling {
                    // Groups of the caller may be bound to the same missing role.
                    if out.contains(text) {
                        continue;
                    }
                    if out.len() < MAX_DANGLING {
                        out.push(text.clone());
                    } else {
                        more += 1;
                    }
                }
            }
        }
        if more > 0 {
            out.push(format!("{more} more"));
        }
        Ok(out)
    }

    /// All bindings that apply to a user, cluster bindings first, each by name.
    pub(crate) fn applying(&self, user: &UserInfo, namespace: &str) -> Vec<ApplicableBinding> {
        let mut out = Vec::new();
        for scope in self.scopes_of(namespace) {
            let mut here: OrdMap<Str, BoundSubject> = OrdMap::new();
            for bucket in scope.buckets(user) {
                for grant in bucket.bindings.iter() {
                    let name = &grant.binding.name;
                    let first = here.get(name).is_none_or(|old| grant.subject < old.subject);
                    if first {
                        here.insert(name.clone(), grant.clone());
                    }
                }
            }
            out.extend(here.into_iter().map(|(_, grant)| ApplicableBinding {
                role: self.role_of(&grant.binding).cloned(),
                binding: grant.binding,
                subject: grant.subject,
            }));
        }
        out
    }

    /// The distinct roles bound to a user in a namespace, and the bindings that could not be resolved.
    pub(crate) fn held(&self, user: &UserInfo, namespace: &str) -> (Vec<Arc<Role>>, Vec<String>) {
        let (mut roles, mut errors) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let mut more = 0;
        for a in self.applying(user, namespace) {
            match a.role {
                // By address: the snapshot has one `Arc` per role, so equal addresses are the same role.
                Some(role) if seen.insert(Arc::as_ptr(&role)) => roles.push(role),
                Some(_) => {}
                None if errors.len() < MAX_DANGLING => errors.push(a.binding.dangling()),
                None => more += 1,
            }
        }
        if more > 0 {
            errors.push(format!("{more} more"));
        }
        (roles, errors)
    }

    /// The rules granted to a user in a namespace, in evaluation order. The list is truncated for size,
    /// because many bindings to one large role repeat its rules.
    pub(crate) fn rules(&self, user: &UserInfo, namespace: &str) -> RuleList {
        let mut out = RuleList::default();
        let (mut bytes, mut more) = (0, 0);
        for a in self.applying(user, namespace) {
            let Some(role) = a.role else {
                if out.errors.len() < MAX_DANGLING {
                    out.errors.push(a.binding.dangling());
                } else {
                    more += 1;
                }
                continue;
            };
            for rule in role.rules.iter() {
                bytes += rule.bytes();
                // Checked before the copy, so that the limit also bounds what is allocated.
                if bytes > MAX_LISTED {
                    out.cut = true;
                    break;
                }
                out.rules.push(rule.clone());
            }
            if out.cut {
                break;
            }
        }
        if more > 0 {
            out.errors.push(format!("{more} more"));
        }
        out
    }

    fn scopes_of<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Arc<Scope>> {
        let local = if namespace.is_empty() {
            None
        } else {
            self.scopes.get(namespace)
        };
        // Cluster-wide bindings first, as upstream's `VisitRulesFor`.
        self.scopes.get("").into_iter().chain(local)
    }
}

// === impl Scope ===

impl Scope {
    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Applies `change` to the bindings of each subject of a binding, from last to first, and drops the
    /// resolved rules cached with them.
    fn edit(&mut self, binding: &Binding, change: impl Fn(Option<&Bindings>, usize) -> Option<Bindings>) {
        for (number, subject) in binding.subjects.iter().enumerate().rev() {
            let (map, name) = match subject.target() {
                Some(Target::User(name)) => (&mut self.users, name),
                Some(Target::Group(name)) => (&mut self.groups, name),
                None => continue,
            };
            if let Some(bindings) = change(map.get(&name).map(|b| &b.bindings), number) {
                // A new bucket, not a changed one: readers of older snapshots share the old one, including
                // its cache.
                let resolved = ArcSwapOption::empty();
                map.insert(name, Arc::new(Bucket { bindings, resolved }));
            } else {
                map.remove(&name);
            }
        }
    }

    fn buckets<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Arc<Bucket>> {
        let own = self.users.get(user.name.as_str());
        own.into_iter()
            .chain(user.groups.iter().filter_map(|g| self.groups.get(g.as_str())))
    }
}

// === impl Bucket ===

impl Bucket {
    fn resolved(&self, index: &Index, steps: &mut StepBudget) -> Result<Arc<Resolved>, BudgetExhausted> {
        if let Some(known) = self.resolved.load_full()
            // Two decisions may resolve the same bucket at once; both results are right, and the last one
            // stays.
            && known.holds(self.bindings.iter(), &index.roles, index.roles_version, steps)?
        {
            return Ok(known);
        }
        let made = Arc::new(Resolved::of(
            self.bindings.iter(),
            &index.roles,
            index.roles_version,
            &index.merged,
            steps,
        )?);
        self.resolved.store(Some(made.clone()));
        Ok(made)
    }
}
