//! Prevents privilege escalation through roles and bindings, as upstream's `pkg/registry/rbac/*/policybased`.
//! Entry points: [`EscalationGuard::role`] and [`EscalationGuard::binding`]. A write is allowed if:
//!
//! ```text
//! the caller is in system:masters                             always
//! only finalizers and owner references change                 always
//! the caller may `escalate` the role or `bind` the bound one  always
//! there is an aggregation rule, before or after               if the caller holds all permissions
//! otherwise                                                   if the caller holds every granted rule,
//!                                                             in the namespace of the request
//! ```

use super::GROUP;
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::{Str, Value};
use crate::authz::rbac::{BudgetExhausted, HeldRules, MissingRules, PolicyRule};
use crate::authz::{Attributes, Authorizer, Decision, Rbac, Rules};
use crate::registry::strategy::Context;
use crate::request::user::MASTERS;
use crate::tasks::off_thread;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Checks writes of roles and bindings against the caller's own permissions.
#[derive(Clone)]
pub(crate) struct EscalationGuard {
    /// Queried for the verbs `escalate` and `bind`.
    pub authorizer: Arc<dyn Authorizer>,
    /// Resolves the rules a caller holds and the rules of bound roles.
    pub roles: Arc<Rbac>,
}

const fn plural(namespaced: bool, binding: bool) -> &'static str {
    match (namespaced, binding) {
        (true, false) => "roles",
        (false, false) => "clusterroles",
        (true, true) => "rolebindings",
        (false, true) => "clusterrolebindings",
    }
}

/// True if only metadata written by the garbage collector changes: finalizers and owner references.
fn only_gc_fields_changed(new: &Value, old: &Value) -> bool {
    let strip = |v: &Value| {
        let mut v = v.clone();
        // The last two change with every write.
        for key in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
            v.unset_meta(key);
        }
        v
    };
    strip(new) == strip(old)
}

fn aggregates(role: &Value) -> bool {
    !role.at(&["aggregationRule", "clusterRoleSelectors"]).items().is_empty()
}

/// Upper bound on the missing rules listed in a refusal.
const MAX_RULES: usize = 100;
/// Upper bound on the verbs listed per rule.
const MAX_VERBS: usize = 100;
/// Length in bytes after which no further rule is listed.
const MAX_TEXT: usize = 32 * 1024;
/// Maximum length in bytes of one listed rule. A hundred verbs of 30 bytes fit.
const MAX_LINE: usize = 4 * 1024;
/// Number of strings in the held rules, and of strings and single grants in the new ones, up to which they are compared
/// inline; larger sets are compared on the compute pool.
const FEW: usize = 300;
/// The bytes that a comparison allocates, as an estimate.
const MEMORY: usize = 1 << 20;

/// A writer that fails beyond [`MAX_LINE`] bytes, which stops the formatting of a rule with long strings.
struct Line(String);

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Cannot underflow: no write appends more than the room left.
        let room = MAX_LINE - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Formats a missing rule as upstream does, with at most [`MAX_VERBS`] verbs and [`MAX_LINE`] bytes.
fn line(mut rule: PolicyRule) -> String {
    let more = rule.verbs.len().saturating_sub(MAX_VERBS);
    // Before formatting: a rule may list any number of verbs.
    rule.verbs.truncate(MAX_VERBS);
    let mut line = Line(String::new());
    match (write!(line, "{rule}"), more) {
        (Err(fmt::Error), _) => format!("{}…", line.0),
        (Ok(()), 0) => line.0,
        (Ok(()), more) => format!("{} and {more} more verbs", line.0),
    }
}

/// Lists the missing rules as upstream does, sorted, one per line. The length is bounded, unlike upstream's.
fn lines(missing: MissingRules) -> String {
    let lines: BTreeSet<String> = missing.rules.into_iter().map(line).collect();
    let mut text = String::new();
    let mut named = 0;
    for line in &lines {
        // At least one rule is listed, however long it is.
        if named == MAX_RULES || (named > 0 && text.len() + line.len() > MAX_TEXT) {
            break;
        }
        if named > 0 {
            text.push('\n');
        }
        text.push_str(line);
        named += 1;
    }
    match (lines.len() - named, missing.more) {
        (0, false) => {}
        (rest, false) => text.push_str(&format!("\nand {rest} more")),
        (rest, true) => text.push_str(&format!("\nand more than {rest} more")),
    }
    text
}

impl EscalationGuard {
    async fn may(&self, cx: &Context, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let asked = Attributes {
            verb,
            is_resource: true,
            api_group: GROUP,
            api_version: "v1",
            namespace,
            resource,
            name,
            ..Attributes::empty(&cx.user)
        };
        self.authorizer.authorize(&asked).await.decision == Decision::Allow
    }

    /// Describes the granted rules that the caller does not hold; `None` if the caller holds all of them.
    async fn missing_rules_text(
        &self,
        cx: &Context,
        namespace: &str,
        granted: Arc<[PolicyRule]>,
    ) -> Result<Option<String>> {
        let held = self.roles.held(&cx.user, namespace).await;
        let (held, errors) = held.map_err(Status::internal)?;
        let held_strings = held.iter().flat_map(|role| role.rules.iter()).map(PolicyRule::weight);
        let strings_and_grants = granted.iter().map(|rule| rule.weight().saturating_add(rule.grants()));
        // Counting is linear in the rules, comparing is not.
        let small = held_strings.chain(strings_and_grants).fold(0, usize::saturating_add) <= FEW;
        let compare = move || {
            let held = HeldRules::of(held.iter().flat_map(|role| role.rules.iter()));
            let missing = held.missing(&granted)?;
            Ok::<_, BudgetExhausted>((!missing.rules.is_empty()).then(|| lines(missing)))
        };
        let missing = if small {
            compare()
        } else {
            let compared = off_thread(MEMORY, compare).await;
            compared
                .ok_or_else(|| Status::too_many_requests("the permissions held could not be compared in time", 1))?
        };
        let groups: Vec<String> = cx.user.groups.iter().map(|g| quote(g)).collect();
        let who = format!("user {} (groups=[{}])", quote(&cx.user.name), groups.join(" "));
        let missing = match missing {
            Ok(None) => return Ok(None),
            Ok(Some(lines)) => lines,
            // Refused: a grant that cannot be compared may be an escalation.
            Err(BudgetExhausted) => {
                let why = "is attempting to grant RBAC permissions that are too many to compare with those currently held; \
                           they may be granted by smaller roles";
                return Ok(Some(format!("{who} {why}")));
            }
        };
        let mut text = format!("{who} is attempting to grant RBAC permissions not currently held:\n{missing}");
        if !errors.is_empty() {
            text.push_str(&format!("; resolution errors: [{}]", errors.join(" ")));
        }
        Ok(Some(text))
    }

    /// Checks a create (`old` is `None`) or update of a Role or ClusterRole.
    ///
    /// # Errors
    /// 403 with upstream's message.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub(crate) async fn role(&self, cx: &Context, namespaced: bool, new: &Value, old: Option<&Value>) -> Result<()> {
        if cx.user.in_group(MASTERS) || old.is_some_and(|old| only_gc_fields_changed(new, old)) {
            return Ok(());
        }
        let resource = plural(namespaced, false);
        // A POST has no name in its path, so permission to escalate a single name does not apply to it.
        let named = old.map_or("", |_| new.name());
        if self.may(cx, "escalate", resource, &cx.namespace, named).await {
            return Ok(());
        }
        let gr = GroupResource::new(GROUP, resource);
        let granted = new.get("rules").items().iter().map(PolicyRule::parse).collect();
        if let Some(why) = self.missing_rules_text(cx, &cx.namespace, granted).await? {
            return Err(Status::forbidden(&gr, new.name(), &why));
        }
        // Aggregation adds rules of roles that others will write, so only a caller who holds everything
        // escalates nothing.
        if !namespaced && (aggregates(new) || old.is_some_and(aggregates)) {
            let everything = Rules::all().rules.into();
            if self.missing_rules_text(cx, &cx.namespace, everything).await?.is_some() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Status::forbidden(&gr, new.name(), why));
            }
        }
        Ok(())
    }

    /// Checks a create (`old` is `None`) or update of a RoleBinding or ClusterRoleBinding.
    ///
    /// # Errors
    /// 403 with upstream's message; 404 if the bound role does not exist and the caller may not `bind` it.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub(crate) async fn binding(&self, cx: &Context, namespaced: bool, new: &Value, old: Option<&Value>) -> Result<()> {
        if cx.user.in_group(MASTERS) || old.is_some_and(|old| only_gc_fields_changed(new, old)) {
            return Ok(());
        }
        let (kind, role) = (new.str_at(&["roleRef", "kind"]), new.str_at(&["roleRef", "name"]));
        let (resource, key) = match kind {
            "ClusterRole" => ("clusterroles", Str::from(role)),
            "Role" if namespaced => ("roles", Str::from(format!("{}/{role}", cx.namespace))),
            // Validation rejects other kinds.
            _ => return Ok(()),
        };
        // Before the role is looked up: with this permission, a role may be bound that does not exist yet.
        if self.may(cx, "bind", resource, &cx.namespace, role).await {
            return Ok(());
        }
        // The cached index may lag behind a role that was created just before its binding.
        let index = self.roles.fresh(&cx.namespace).await.map_err(Status::internal)?;
        let Some(bound) = index.role(&key) else {
            return Err(Status::not_found(&GroupResource::new(GROUP, resource), role));
        };
        let granted = bound.rules.clone();
        match self.missing_rules_text(cx, &cx.namespace, granted).await? {
            None => Ok(()),
            Some(why) => {
                let gr = GroupResource::new(GROUP, plural(namespaced, true));
                Err(Status::forbidden(&gr, new.name(), &why))
            }
        }
    }
}

#[cfg(test)]
mod tests;
