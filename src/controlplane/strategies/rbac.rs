//! Strategies of roles and bindings. Granting permissions requires holding them, or the verb `escalate` or
//! `bind`; [`guard`] enforces this.

mod guard;

pub(crate) use guard::EscalationGuard;

use crate::apimachinery::field::ErrorList;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{elements_mut, set_default_str};
use crate::controlplane::validation;
use crate::controlplane::validation::rbac::GROUP;
use crate::registry::strategy::{Context, NameRule, Outcome, Rules, SideEffects, Strategy};
use async_trait::async_trait;

/// Strategy of Roles and ClusterRoles.
pub(crate) struct Role {
    /// True for the namespaced kind.
    pub namespaced: bool,
    pub guard: EscalationGuard,
}

impl Strategy for Role {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::PathSegment)
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::rbac::role(object, self.namespaced)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for Role {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        self.guard.role(cx, self.namespaced, new, old).await
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}

/// Strategy of RoleBindings and ClusterRoleBindings.
pub(crate) struct RoleBinding {
    /// True for the namespaced kind.
    pub namespaced: bool,
    pub guard: EscalationGuard,
}

impl Strategy for RoleBinding {
    fn rules(&self) -> Rules {
        Rules::named(NameRule::PathSegment)
    }

    fn default(&self, object: &mut Value) {
        set_default_str(object, &["roleRef", "apiGroup"], GROUP);
        for s in elements_mut(object, &["subjects"]) {
            // Service accounts belong to the core group, whose name is empty.
            if matches!(s.str_at(&["kind"]), "User" | "Group") {
                set_default_str(s, &["apiGroup"], GROUP);
            }
        }
    }

    fn validate_create(&self, object: &Value) -> ErrorList {
        validation::rbac::binding(object, self.namespaced)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> ErrorList {
        validation::rbac::binding_update(new, old, self.namespaced)
    }

    fn effects(&self) -> Option<&dyn SideEffects> {
        Some(self)
    }
}

#[async_trait]
impl SideEffects for RoleBinding {
    async fn begin(&self, cx: &Context, new: &mut Value, old: Option<&Value>) -> Result<()> {
        self.guard.binding(cx, self.namespaced, new, old).await
    }

    async fn end(&self, _cx: &Context, _object: &Value, _outcome: Outcome<'_>) {}
}
