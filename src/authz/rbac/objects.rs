//! Roles and bindings in parsed form, as the index stores them. A [`Role`] carries its own table of rules,
//! built once and shared by all subjects that are bound to it.

use crate::apimachinery::field::quote;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::{Str, Value};
use crate::authz::Attributes;
use std::sync::{Arc, OnceLock};

use super::postings::{BudgetExhausted, StepBudget};
use super::rule::PolicyRule;
use super::table::Table;

/// Number of strings up to which a role's table is built on first use. Larger roles build it when they are
/// parsed, where no request waits for it.
const SMALL: usize = 500;

/// A Role or ClusterRole.
pub(crate) struct Role {
    /// The rules, in order.
    pub rules: Arc<[PolicyRule]>,
    /// Number of strings in the rules.
    pub(super) weight: usize,
    table: OnceLock<Table>,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: Str,
    pub name: Str,
    /// Namespace of a service account; defaults to that of the RoleBinding.
    pub namespace: Str,
}

/// The index key of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    User(Str),
    Group(Str),
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// Namespace; empty for a ClusterRoleBinding.
    pub namespace: Str,
    /// Name of the binding.
    pub name: Str,
    /// `Role` or `ClusterRole`.
    pub role_kind: Str,
    /// Name of the role.
    pub role_name: Str,
    /// The subjects, in order.
    pub subjects: Vec<Subject>,
}

// === impl Role ===

impl Role {
    /// Parses a Role or ClusterRole of `rbac.authorization.k8s.io/v1`.
    pub(crate) fn parse(v: &Value) -> Self {
        Self::of(v.get("rules").items().iter().map(PolicyRule::parse).collect())
    }

    /// A role with the given rules.
    pub(crate) fn of(rules: Vec<PolicyRule>) -> Self {
        let rules: Arc<[PolicyRule]> = rules.into();
        let me = Self {
            weight: rules.iter().map(PolicyRule::weight).sum(),
            rules,
            table: OnceLock::new(),
        };
        // Parsing runs in the informer's task, where no request waits.
        if me.weight > SMALL {
            me.table();
        }
        me
    }

    fn table(&self) -> &Table {
        self.table.get_or_init(|| Table::of(self.rules.iter().enumerate()))
    }

    /// The first rule that allows the request.
    pub(super) fn find(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Option<usize>, BudgetExhausted> {
        // Building the table is charged to the decision that needs it first. About ten steps a string:
        // hashing and inserting one.
        if self.table.get().is_none() {
            steps.charge(self.weight * 10)?;
        }
        steps.charge(10)?;
        self.table().find(attributes, steps)
    }
}

// === impl Binding ===

impl Binding {
    /// Parses a binding of `rbac.authorization.k8s.io/v1`; a ClusterRoleBinding has no namespace.
    pub(crate) fn parse(v: &Value) -> Self {
        let namespace = v.namespace();
        let subject = |s: &Value| Subject {
            kind: s.str_at(&["kind"]).into(),
            name: s.str_at(&["name"]).into(),
            namespace: match s.str_at(&["namespace"]) {
                // As upstream's `appliesTo`: in a RoleBinding, a service account without a namespace is one
                // of the same namespace.
                "" => namespace.into(),
                other => other.into(),
            },
        };
        Self {
            namespace: namespace.into(),
            name: v.name().into(),
            role_kind: v.str_at(&["roleRef", "kind"]).into(),
            role_name: v.str_at(&["roleRef", "name"]).into(),
            subjects: v.get("subjects").items().iter().map(subject).collect(),
        }
    }

    /// The index key of the role; `None` for an unknown kind of role.
    pub(super) fn role_key(&self) -> Option<Str> {
        match self.role_kind.as_str() {
            "ClusterRole" => Some(self.role_name.clone()),
            "Role" => Some(Str::from(format!("{}/{}", self.namespace, self.role_name))),
            _ => None,
        }
    }

    /// The error for a missing role, with the message of upstream's listers.
    pub(super) fn dangling(&self) -> String {
        let name = quote(&self.role_name);
        match self.role_kind.as_str() {
            "ClusterRole" => format!("clusterrole.rbac.authorization.k8s.io {name} not found"),
            "Role" => format!("role.rbac.authorization.k8s.io {name} not found"),
            kind => format!("unsupported role reference kind: {}", quote(kind)),
        }
    }

    /// `RoleBinding "name/namespace" of Role "r" to User "u"`; upstream prints name and namespace in this
    /// order.
    pub(crate) fn describe(&self, subject: usize) -> String {
        let to = self.subjects.get(subject).map(Subject::describe).unwrap_or_default();
        let (kind, at) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", quote(&self.name))
        } else {
            ("RoleBinding", quote(&format!("{}/{}", self.name, self.namespace)))
        };
        format!("{kind} {at} of {} {} to {to}", self.role_kind, quote(&self.role_name))
    }
}

// === impl Subject ===

impl Subject {
    pub(super) fn target(&self) -> Option<Target> {
        match self.kind.as_str() {
            "User" => Some(Target::User(self.name.clone())),
            "Group" => Some(Target::Group(self.name.clone())),
            // Stored under the user name, so that a lookup is the same for users and service accounts.
            // Without a namespace (in a ClusterRoleBinding) it matches nobody, as in upstream's
            // `appliesToUser`.
            "ServiceAccount" if !self.namespace.is_empty() => Some(Target::User(Str::from(format!(
                "system:serviceaccount:{}:{}",
                self.namespace, self.name
            )))),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        if self.kind == "ServiceAccount" {
            format!("{} {}", self.kind, quote(&format!("{}/{}", self.name, self.namespace)))
        } else {
            format!("{} {}", self.kind, quote(&self.name))
        }
    }
}
