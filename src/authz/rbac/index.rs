//! Who is bound to what, found by who asks: scope (a namespace, or the cluster) → user or group → bindings.
//!
//! An index is immutable and made of persistent maps: a change copies a few nodes and leaves readers alone. A change of
//! a role is one entry, whoever is bound to it: what a subject's bindings resolve to carries the version of the roles it
//! was resolved with, and is looked at again by the next decision that needs it.

use super::objects::{Binding, PolicyRule, Role, Target};
use super::postings::{Spent, Steps};
use super::resolved::{Grant, Merged, Resolved};
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use crate::request::UserInfo;
use arc_swap::ArcSwapOption;
use imbl::{HashMap, OrdMap};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unresolved bindings named in a reason; the others are counted.
pub(super) const MOST_DANGLING: usize = 10;
/// Bytes of rules listed for one caller.
const MOST_LISTED: usize = 4 << 20;

/// Roles and bindings at one time.
#[derive(Clone, Default)]
pub struct Index {
    /// By name (ClusterRole) or `namespace/name` (Role).
    roles: HashMap<Str, Arc<Role>>,
    /// Another one whenever a role appears, changes or goes.
    roles_version: u64,
    /// By name or `namespace/name`.
    bindings: OrdMap<Str, Arc<Binding>>,
    /// By namespace; `""` is the cluster.
    scopes: HashMap<Str, Arc<Scope>>,
    /// What the merged tables of all subjects weigh.
    merged: Merged,
}

#[derive(Clone, Default)]
struct Scope {
    users: HashMap<Str, Arc<Bucket>>,
    groups: HashMap<Str, Arc<Bucket>>,
}

/// The bindings that name one subject in one scope.
#[derive(Default)]
struct Bucket {
    bindings: OrdMap<Str, Grant>,
    resolved: ArcSwapOption<Resolved>,
}

/// What allows something.
pub struct Found {
    /// The binding.
    pub binding: Arc<Binding>,
    /// Which of its subjects it is.
    pub subject: usize,
    /// The role.
    pub role: Arc<Role>,
}

/// Rules somebody has.
#[derive(Default)]
pub struct Listed {
    /// In order.
    pub rules: Vec<PolicyRule>,
    /// What could not be resolved.
    pub errors: Vec<String>,
    /// The list was cut: it would be too long.
    pub cut: bool,
}

/// A binding that names somebody.
pub struct Applies {
    /// The binding.
    pub binding: Arc<Binding>,
    /// Which of its subjects it is.
    pub subject: usize,
    /// The role; `None`: it is not there.
    pub role: Option<Arc<Role>>,
}

// === impl Index ===

impl Index {
    /// A role appears, changes or goes. The key is its name, for a Role with its namespace and a slash in front.
    pub fn set_role(&mut self, key: &str, role: Option<Arc<Role>>) {
        // Of the whole process: copies of an index that change apart never share a version.
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        match role {
            Some(role) => self.roles.insert(key.into(), role),
            None => self.roles.remove(key),
        };
        self.roles_version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// A binding appears, changes or goes. The cost follows its subjects.
    pub fn set_binding(&mut self, key: &str, binding: Option<Arc<Binding>>) {
        let old = match &binding {
            Some(new) => self.bindings.insert(key.into(), new.clone()),
            None => self.bindings.remove(key),
        };
        if let Some(old) = old {
            self.edit(&old, |bucket, _| drop(bucket.remove(old.name.as_str())));
        }
        if let Some(new) = binding {
            let role = new.role_key();
            // From the last to the first: of several that are the same caller, the first is kept.
            self.edit(&new, |bucket, subject| {
                let grant = Grant {
                    binding: new.clone(),
                    subject,
                    role: role.clone(),
                };
                bucket.insert(new.name.clone(), grant);
            });
        }
    }

    /// Changes the bucket of each subject of a binding, from the last to the first. The buckets forget what they
    /// resolved to.
    fn edit(&mut self, binding: &Binding, change: impl Fn(&mut OrdMap<Str, Grant>, usize)) {
        let scope = &binding.namespace;
        let mut whole = self.scopes.get(scope).map(|s| Scope::clone(s)).unwrap_or_default();
        for (number, subject) in binding.subjects.iter().enumerate().rev() {
            let (map, name) = match subject.target() {
                Some(Target::User(name)) => (&mut whole.users, name),
                Some(Target::Group(name)) => (&mut whole.groups, name),
                None => continue,
            };
            let mut bindings = map.get(&name).map(|b| b.bindings.clone()).unwrap_or_default();
            change(&mut bindings, number);
            if bindings.is_empty() {
                map.remove(&name);
            } else {
                let resolved = ArcSwapOption::empty();
                map.insert(name, Arc::new(Bucket { bindings, resolved }));
            }
        }
        if whole.users.is_empty() && whole.groups.is_empty() {
            self.scopes.remove(scope);
        } else {
            self.scopes.insert(scope.clone(), Arc::new(whole));
        }
    }

    /// The role under a key.
    pub fn role(&self, key: &str) -> Option<&Arc<Role>> {
        self.roles.get(key)
    }

    /// The role a binding refers to.
    pub fn role_of(&self, binding: &Binding) -> Option<&Arc<Role>> {
        self.roles.get(&binding.role_key()?)
    }

    /// Numbers of roles and bindings.
    pub fn sizes(&self) -> (usize, usize) {
        (self.roles.len(), self.bindings.len())
    }

    /// What allows it: cluster bindings first, then those of the namespace, by name.
    ///
    /// # Errors
    /// [`Spent`]: it takes longer than the budget.
    pub fn find(&self, asked: &Attributes<'_>, steps: &mut Steps) -> Result<Option<Found>, Spent> {
        for scope in self.scopes_of(asked.namespace) {
            let mut best: Option<Found> = None;
            for bucket in scope.buckets(asked.user) {
                let resolved = bucket.resolved(self, steps)?;
                let Some((grant, role)) = resolved.find(asked, steps)? else {
                    continue;
                };
                let before = |best: &Found| (&grant.binding.name, grant.subject) < (&best.binding.name, best.subject);
                if best.as_ref().is_none_or(before) {
                    best = Some(Found {
                        binding: grant.binding.clone(),
                        subject: grant.subject,
                        role: role.clone(),
                    });
                }
            }
            if best.is_some() {
                return Ok(best);
            }
        }
        Ok(None)
    }

    /// Why bindings that name the caller say nothing: their roles are not there. A few are named, the rest counted.
    ///
    /// # Errors
    /// [`Spent`]: it takes longer than the budget.
    pub fn dangling(&self, asked: &Attributes<'_>, steps: &mut Steps) -> Result<Vec<String>, Spent> {
        let mut out: Vec<String> = Vec::new();
        let mut more = 0;
        for scope in self.scopes_of(asked.namespace) {
            for bucket in scope.buckets(asked.user) {
                let resolved = bucket.resolved(self, steps)?;
                more += resolved.more_dangling;
                for text in &resolved.dangling {
                    // Each bucket names a few, and `out` holds a few.
                    if out.contains(text) {
                        continue;
                    }
                    if out.len() < MOST_DANGLING {
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

    /// All bindings that name the caller, cluster ones first, by name.
    pub fn applying(&self, user: &UserInfo, namespace: &str) -> Vec<Applies> {
        let mut out = Vec::new();
        for scope in self.scopes_of(namespace) {
            let mut here: OrdMap<Str, Grant> = OrdMap::new();
            for bucket in scope.buckets(user) {
                for (name, grant) in &bucket.bindings {
                    let first = here.get(name).is_none_or(|old| grant.subject < old.subject);
                    if first {
                        here.insert(name.clone(), grant.clone());
                    }
                }
            }
            out.extend(here.into_iter().map(|(_, grant)| Applies {
                role: self.role_of(&grant.binding).cloned(),
                binding: grant.binding,
                subject: grant.subject,
            }));
        }
        out
    }

    /// The roles somebody has in a namespace, each once, and what could not be resolved.
    pub fn held(&self, user: &UserInfo, namespace: &str) -> (Vec<Arc<Role>>, Vec<String>) {
        let (mut roles, mut errors) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let mut more = 0;
        for a in self.applying(user, namespace) {
            match a.role {
                Some(role) if seen.insert(Arc::as_ptr(&role)) => roles.push(role),
                Some(_) => {}
                None if errors.len() < MOST_DANGLING => errors.push(a.binding.dangling()),
                None => more += 1,
            }
        }
        if more > 0 {
            errors.push(format!("{more} more"));
        }
        (roles, errors)
    }

    /// The rules that hold for somebody in a namespace, in order, and what could not be resolved. A list that grows too
    /// long is cut: many bindings of one long role repeat it.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> Listed {
        let mut out = Listed::default();
        let (mut bytes, mut more) = (0, 0);
        for a in self.applying(user, namespace) {
            let Some(role) = a.role else {
                if out.errors.len() < MOST_DANGLING {
                    out.errors.push(a.binding.dangling());
                } else {
                    more += 1;
                }
                continue;
            };
            for rule in role.rules.iter() {
                bytes += rule.bytes();
                if bytes > MOST_LISTED {
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
        self.scopes.get("").into_iter().chain(local)
    }
}

// === impl Scope ===

impl Scope {
    fn buckets<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a Arc<Bucket>> {
        let own = self.users.get(user.name.as_str());
        own.into_iter()
            .chain(user.groups.iter().filter_map(|g| self.groups.get(g.as_str())))
    }
}

// === impl Bucket ===

impl Bucket {
    fn resolved(&self, index: &Index, steps: &mut Steps) -> Result<Arc<Resolved>, Spent> {
        if let Some(known) = self.resolved.load_full()
            && known.holds(self.bindings.values(), &index.roles, index.roles_version, steps)?
        {
            return Ok(known);
        }
        let made = Arc::new(Resolved::of(
            self.bindings.values(),
            &index.roles,
            index.roles_version,
            &index.merged,
            steps,
        )?);
        self.resolved.store(Some(made.clone()));
        Ok(made)
    }
}
