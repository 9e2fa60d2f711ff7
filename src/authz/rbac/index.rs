//! Who is bound to what, found by who asks: scope (a namespace, or the cluster) → user or group → bindings.
//!
//! An index is immutable and made of persistent maps: a change copies a few nodes and leaves readers alone. What a
//! change concerns loses its worked-out form, which the next decision that needs it makes again.

use super::objects::{Binding, PolicyRule, Role, Target};
use super::table::Table;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use crate::request::UserInfo;
use imbl::{HashMap, OrdMap, OrdSet};
use std::sync::{Arc, OnceLock};

/// Roles up to which a subject's roles are asked one by one; more get a table of their own.
const FEW: usize = 6;

/// Roles and bindings at one time.
#[derive(Clone, Default)]
pub struct Index {
    /// By name (ClusterRole) or `namespace/name` (Role).
    roles: HashMap<Str, Arc<Role>>,
    /// By name or `namespace/name`.
    bindings: OrdMap<Str, Arc<Binding>>,
    /// Bindings of a role.
    bound: HashMap<Str, OrdSet<Str>>,
    /// By namespace; `""` is the cluster.
    scopes: HashMap<Str, Arc<Scope>>,
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
    resolved: OnceLock<Resolved>,
}

/// A binding, and which of its subjects it is.
#[derive(Clone)]
struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

#[derive(Default)]
struct Resolved {
    /// One per role: the first binding of it.
    grants: Vec<(Grant, Arc<Role>)>,
    /// Bindings of roles that are not there.
    dangling: Vec<String>,
    /// All their rules, where there are many roles.
    table: Option<Table>,
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
        match role {
            Some(role) => self.roles.insert(key.into(), role),
            None => self.roles.remove(key),
        };
        let bindings: Vec<Arc<Binding>> = self
            .bound
            .get(key)
            .into_iter()
            .flatten()
            .filter_map(|b| self.bindings.get(b).cloned())
            .collect();
        for binding in bindings {
            self.edit(&binding, &|_| {});
        }
    }

    /// A binding appears, changes or goes.
    pub fn set_binding(&mut self, key: &str, binding: Option<Arc<Binding>>) {
        let old = match &binding {
            Some(new) => self.bindings.insert(key.into(), new.clone()),
            None => self.bindings.remove(key),
        };
        if let Some(old) = old {
            self.edit(&old, &|bucket| drop(bucket.remove(old.name.as_str())));
            if let Some(role) = old.role_key()
                && let Some(set) = self.bound.get_mut(&role)
            {
                set.remove(key);
                if set.is_empty() {
                    self.bound.remove(&role);
                }
            }
        }
        let Some(new) = binding else { return };
        if let Some(role) = new.role_key() {
            self.bound.entry(role).or_default().insert(key.into());
        }
        for subject in (0..new.subjects.len()).rev() {
            let Some(target) = new.subjects[subject].target() else {
                continue;
            };
            // From the last to the first: of several that are the same caller, the first is kept.
            let grant = Grant {
                binding: new.clone(),
                subject,
            };
            self.edit_one(&new.namespace, target, &|bucket| {
                bucket.insert(new.name.clone(), grant.clone());
            });
        }
    }

    fn edit(&mut self, binding: &Binding, change: &dyn Fn(&mut OrdMap<Str, Grant>)) {
        for target in binding.subjects.iter().filter_map(super::objects::Subject::target) {
            self.edit_one(&binding.namespace, target, change);
        }
    }

    /// Changes a bucket, which forgets what was worked out.
    fn edit_one(&mut self, scope: &Str, target: Target, change: &dyn Fn(&mut OrdMap<Str, Grant>)) {
        let mut whole = self.scopes.get(scope).map(|s| Scope::clone(s)).unwrap_or_default();
        let (map, name) = match target {
            Target::User(name) => (&mut whole.users, name),
            Target::Group(name) => (&mut whole.groups, name),
        };
        let mut bindings = map.get(&name).map(|b| b.bindings.clone()).unwrap_or_default();
        change(&mut bindings);
        if bindings.is_empty() {
            map.remove(&name);
        } else {
            let resolved = OnceLock::new();
            map.insert(name, Arc::new(Bucket { bindings, resolved }));
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
    pub fn find(&self, asked: &Attributes<'_>) -> Option<Found> {
        self.scopes_of(asked.namespace).find_map(|scope| {
            scope
                .buckets(asked.user)
                .filter_map(|bucket| bucket.resolved(self).find(asked))
                .min_by(|(a, _), (b, _)| (&a.binding.name, a.subject).cmp(&(&b.binding.name, b.subject)))
                .map(|(grant, role)| Found {
                    binding: grant.binding.clone(),
                    subject: grant.subject,
                    role: role.clone(),
                })
        })
    }

    /// Why bindings that name the caller say nothing: their roles are not there.
    pub fn dangling(&self, asked: &Attributes<'_>) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for scope in self.scopes_of(asked.namespace) {
            for bucket in scope.buckets(asked.user) {
                for text in &bucket.resolved(self).dangling {
                    if !out.contains(text) {
                        out.push(text.clone());
                    }
                }
            }
        }
        out
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

    /// The rules that hold for somebody in a namespace, in order, and what could not be resolved.
    pub fn rules(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for a in self.applying(user, namespace) {
            match a.role {
                Some(role) => rules.extend(role.rules.iter().cloned()),
                None => errors.push(a.binding.dangling()),
            }
        }
        (rules, errors)
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
    fn resolved(&self, index: &Index) -> &Resolved {
        self.resolved.get_or_init(|| {
            let mut out = Resolved::default();
            let mut seen = std::collections::HashSet::new();
            for grant in self.bindings.values() {
                let Some(role) = index.role_of(&grant.binding) else {
                    out.dangling.push(grant.binding.dangling());
                    continue;
                };
                if seen.insert(Arc::as_ptr(role)) {
                    out.grants.push((grant.clone(), role.clone()));
                }
            }
            if out.grants.len() > FEW {
                let rules = out.grants.iter().enumerate();
                out.table = Some(Table::of(
                    rules.flat_map(|(at, (_, role))| role.rules.iter().map(move |r| (at, r))),
                ));
            }
            out
        })
    }
}

// === impl Resolved ===

impl Resolved {
    fn find(&self, asked: &Attributes<'_>) -> Option<&(Grant, Arc<Role>)> {
        match &self.table {
            Some(table) => table.find(asked).map(|at| &self.grants[at]),
            None => self.grants.iter().find(|(_, role)| role.allows(asked).is_some()),
        }
    }
}
