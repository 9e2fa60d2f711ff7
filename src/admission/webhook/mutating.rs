//! Calls mutating webhooks one after the other, in the order of their configurations' names (upstream:
//! `admission/plugin/webhook/mutating/dispatcher.go`).
//!
//! ```text
//! round 0: every webhook that matches. A change starts round 1, which calls the IfNeeded ones called so far.
//! round 1: the marked ones that still match; all IfNeeded ones, if other plugins changed the object.
//! ```

use super::call::{apply_failure_policy, ask};
use super::configurations::{Active, Snapshot};
use super::failure::Failure;
use super::review::ReviewResponse;
use super::selection::Selection;
use super::{Calls, MutatingWebhooks, patch};
use crate::admission::reinvocation::Rounds;
use crate::admission::versioned::Versioned;
use crate::admission::{Attributes, ServedKind};
use crate::apimachinery::codec::json;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use crate::request::AuditLevel;
use crate::telemetry::admission_webhooks::WebhookLabels;
use std::time::Instant;

pub(super) async fn dispatch(
    calls: &Calls,
    snapshot: &Snapshot,
    attributes: &Attributes,
    object: &mut Value,
) -> Result<()> {
    let mut rounds = Rounds::<MutatingWebhooks>::begin(&attributes.reinvocation, object);
    if rounds.are_over() {
        return Ok(());
    }
    let mut selection = Selection::new(calls, attributes, "admit");
    // Moved out instead of copied; on an error the write ends, and nobody reads the object again.
    let mut versioned = Versioned::new(&calls.cluster, attributes, std::mem::take(object));
    for (position, active) in snapshot.candidates(&attributes.resource.resource) {
        // For each webhook anew: an earlier one may have changed labels that selectors read.
        let target = selection.select_changed(active, &versioned).await?;
        let Some(target) = target else { continue };
        if !rounds.includes(&active.hook.id) {
            continue;
        }
        let call = One {
            calls,
            active,
            attributes,
            labels: selection.labels(active),
            place: format!("round_{}_index_{position}", u8::from(rounds.is_second())),
        };
        if call.run(&mut versioned, &target).await? {
            // Before this webhook is recorded: its own change does not call it again.
            rounds.mark_called();
            selection.object_changed();
            attributes.reinvocation.request();
        }
        // Also if the call failed open: upstream records it before it looks at the result.
        if active.hook.reinvoke {
            rounds.called(active.hook.id.clone());
        }
    }
    *object = versioned.finish().await?;
    rounds.end(&attributes.reinvocation, object);
    Ok(())
}

/// One call.
struct One<'a> {
    calls: &'a Calls,
    active: &'a Active,
    attributes: &'a Attributes,
    labels: WebhookLabels<'a>,
    /// Round and position, for audit annotations.
    place: String,
}

impl One<'_> {
    /// Returns true if the webhook changed the object.
    async fn run(&self, versioned: &mut Versioned<'_>, target: &ServedKind) -> Result<bool> {
        let (active, attributes) = (self.active, self.attributes);
        let objects = versioned.encode_as(target).await?;
        let began = Instant::now();
        let asked = async {
            let answer = ask(self.calls, active, true, attributes, target, &objects).await?;
            let names = (active.hook.name.as_str(), attributes.subresource.as_str());
            let patched = patch::apply(&self.calls.cluster, names, target, versioned.object(), &answer).await?;
            Ok::<_, Failure>((answer, patched))
        };
        let outcome = asked.await;
        let patched = match &outcome {
            Ok((answer, Some(patched))) => Some((answer, patched)),
            _ => None,
        };
        // By content: a patch that sets what is there already must not cause another round.
        let changed = patched.is_some_and(|(_, patched)| patched != versioned.object());
        self.annotate(changed, patched.map(|(answer, _)| answer));
        match apply_failure_policy(self.calls, active, self.labels, began.elapsed(), outcome)? {
            Some((_, Some(patched))) => versioned.set(patched),
            Some((_, None)) => {}
            None => {
                let key = format!("failed-open.mutation.webhook.admission.k8s.io/{}", self.place);
                attributes.audit.annotate(&key, active.hook.name.as_str());
                // A webhook that failed open may have used up the request's time.
                attributes.in_time()?;
            }
        }
        Ok(changed)
    }

    fn annotate(&self, mutated: bool, patched: Option<&ReviewResponse>) {
        let audit = &self.attributes.audit;
        if audit.level() == AuditLevel::None {
            return;
        }
        let hook = &self.active.hook;
        let mut value = crate::json!({"configuration": (hook.configuration.as_str()), "webhook": (hook.name.as_str())});
        // Patches may contain secrets, so they are recorded at the levels that record bodies.
        if let Some(answer) = patched.filter(|_| audit.wants_objects()) {
            let mut annotation = value.clone();
            annotation.set(&["patch"], json::decode(&answer.patch).unwrap_or_default());
            annotation.set(&["patchType"], "JSONPatch");
            let key = format!("patch.webhook.admission.k8s.io/{}", self.place);
            audit.annotate(&key, json::to_string(&annotation));
        }
        value.set(&["mutated"], mutated);
        let key = format!("mutation.webhook.admission.k8s.io/{}", self.place);
        audit.annotate(&key, json::to_string(&value));
    }
}
