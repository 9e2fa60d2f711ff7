//! One call of a webhook: sends the review and reads the response. [`apply_failure_policy`] decides what a
//! failed call means.

use super::Calls;
use super::config::FailurePolicy;
use super::configurations::Active;
use super::failure::{Failure, UNAVAILABLE};
use super::review::{self, Review, ReviewResponse, Unacceptable, Undecodable};
use crate::admission::versioned::Encoded;
use crate::admission::{Attributes, ServedKind};
use crate::apimachinery::names;
use crate::apimachinery::status::Status;
use crate::apimachinery::validation::qualified_name;
use crate::apimachinery::value::Value;
use crate::client::webhook::{Call, CallError};
use crate::tasks::off_thread;
use crate::telemetry::admission_webhooks::{RejectionCause, WebhookLabels};
use crate::telemetry::request_parts::Part;
use std::time::{Duration, Instant};

/// Limits of a response in bytes: a patch may replace the whole object, in base64.
const RESPONSE_BYTES: usize = 4 << 20;
const RESPONSE_FACTOR: usize = 2;
/// Answers from this size on are decoded off the reactor.
const LARGE: usize = 16 << 10;
/// Estimated bytes allocated per byte of a response that is decoded.
const MEMORY_PER_BYTE: usize = 8;
/// Bytes of an invalid annotation key that are logged: as many as a valid one can have.
const LOGGED_KEY: usize = 317;

/// Sends a review to a webhook, and returns its answer if that admits the write.
///
/// # Errors
/// [`Failure`].
///
/// # Cancel safety
/// Cancel safe for this side; the webhook may have received the review.
pub(super) async fn ask(
    calls: &Calls,
    active: &Active,
    mutating: bool,
    attributes: &Attributes,
    target: &ServedKind,
    objects: &Encoded,
) -> Result<ReviewResponse, Failure> {
    let hook = &active.hook;
    if attributes.dry_run && !hook.dry_runs {
        return Err(Failure::Internal(Status::bad_request(format!(
            "admission webhook {:?} does not support dry run",
            hook.name.as_str()
        ))));
    }
    let Some(version) = hook.review_version else {
        let why =
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Call {
            why: why.to_owned(),
            code: 400,
        });
    };
    let connection = active.connection(&calls.webhooks).map_err(|e| Failure::Call {
        why: e.to_string(),
        code: 500,
    })?;
    // A new one for each call, by which a response to another request is detected.
    let uid = names::uid();
    let body = Review {
        version,
        uid: &uid,
        attributes,
        target,
        object: &objects.object,
        old_object: &objects.old,
    }
    .encode();
    // Grows with the request: a webhook may send the object back that it received.
    let max_response = RESPONSE_BYTES + RESPONSE_FACTOR * body.len();
    let posted = connection.post(Call {
        body: body.into(),
        // The webhook must not be waited for longer than the client waits.
        timeout: attributes
            .time_left()
            .map_or(hook.timeout, |left| left.min(hook.timeout)),
        max_response,
    });
    let began = Instant::now();
    let posted = posted.await;
    let part = match mutating {
        true => Part::MutatingWebhooks,
        false => Part::ValidatingWebhooks,
    };
    // Also for failed calls: the client has waited for them.
    attributes.audit.took(part, began.elapsed());
    let body = posted.map_err(|e| Failure::Call {
        code: match &e {
            CallError::Status(code, _) => *code,
            _ => UNAVAILABLE,
        },
        why: format!("failed to call webhook: {e}"),
    })?;
    let size = body.len();
    let read = move || review::answer(version, &uid, mutating, &body);
    let answer = match size < LARGE {
        true => read(),
        false => {
            let busy = || Err(Undecodable::Busy.into());
            off_thread(size * MEMORY_PER_BYTE, read).await.unwrap_or_else(busy)
        }
    };
    let answer = answer.map_err(|why| {
        Failure::unusable(match why {
            Unacceptable::Undecodable(why) => format!("failed to call webhook: {why}"),
            Unacceptable::Invalid(why) => format!("received invalid webhook response: {why}"),
        })
    })?;
    // Also if the write is denied: warnings and annotations explain it.
    annotate(attributes, &hook.name, &answer);
    for warning in &answer.warnings {
        attributes.warnings.add(warning.as_str());
    }
    match answer.allowed {
        true => Ok(answer),
        false => Err(Failure::Denied(denied(&hook.name, answer.status))),
    }
}

fn annotate(attributes: &Attributes, webhook: &str, answer: &ReviewResponse) {
    for (key, value) in &answer.audit_annotations {
        let key = format!("{webhook}/{key}");
        // A key of the webhook's that has a slash of its own would make two.
        if key.matches('/').count() == 1 && qualified_name(&key).is_empty() {
            attributes.audit.annotate(&key, value.as_str());
        } else {
            let shown = key.get(..key.floor_char_boundary(LOGGED_KEY)).unwrap_or_default();
            tracing::warn!(%webhook, key = ?shown, "a webhook's audit annotation has an invalid key and is dropped");
        }
    }
}

/// The Status of a refusal.
fn denied(webhook: &str, status: Option<Value>) -> Status {
    let mut status = status.unwrap_or_else(Value::object);
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match (status.str_at(&["message"]), status.str_at(&["reason"])) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status.set(&["message"], message);
    if matches!(status.str_at(&["status"]), "" | "Success") {
        status.set(&["status"], "Failure");
    }
    let code = status.get("code").as_i64().unwrap_or_default();
    // HTTP has three digits.
    let code = u16::try_from(code.clamp(400, 999)).unwrap_or(400);
    Status::verbatim(code, status)
}

/// Records the outcome of a call in metrics and statistics, and applies the failure policy: `Ok(None)` if the
/// call failed and the policy is to ignore that.
///
/// # Errors
/// The Status to respond with.
pub(super) fn apply_failure_policy<T>(
    calls: &Calls,
    active: &Active,
    labels: WebhookLabels<'_>,
    took: Duration,
    outcome: Result<T, Failure>,
) -> Result<Option<T>, Status> {
    let hook = &active.hook;
    let metrics = &calls.metrics;
    active.stats.record(hook, took, &outcome);
    let failure = match outcome {
        Ok(answer) => {
            // The HTTP code of the call, not of the review.
            metrics.called(labels, took, 200, false);
            return Ok(Some(answer));
        }
        Err(failure) => failure,
    };
    match failure {
        Failure::Call { why, code } if hook.failure_policy == FailurePolicy::Ignore => {
            tracing::warn!(webhook = %hook.name, configuration = %hook.configuration, "failed calling webhook, failing open: {why}");
            metrics.called(labels, took, code, false);
            metrics.failed_open(labels);
            Ok(None)
        }
        Failure::Call { why, code } => {
            tracing::warn!(webhook = %hook.name, configuration = %hook.configuration, "failed calling webhook, failing closed: {why}");
            metrics.rejected(labels, RejectionCause::Call, code);
            metrics.called(labels, took, code, true);
            Err(Status::internal(format!(
                "failed calling webhook {:?}: {why}",
                hook.name.as_str()
            )))
        }
        Failure::Denied(status) => {
            metrics.rejected(labels, RejectionCause::Denied, status.code);
            metrics.called(labels, took, status.code, true);
            Err(status)
        }
        // Not subject to the failure policy: ignoring a patch that does not apply would store an object without it.
        Failure::Internal(status) => {
            metrics.rejected(labels, RejectionCause::Internal, 0);
            metrics.called(labels, took, 0, true);
            Err(status)
        }
    }
}
