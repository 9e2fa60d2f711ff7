//! Deletes finished Jobs after their `ttlSecondsAfterFinished` (`pkg/controller/ttlafterfinished`).

use super::expiry::{self, Expiring, Loop};
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use ::time::OffsetDateTime;
use std::sync::LazyLock;

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{uid,deletionTimestamp}",
        "spec.ttlSecondsAfterFinished",
        "status.conditions",
    ])
});

#[derive(Debug, PartialEq, Eq)]
struct Job {
    uid: Str,
    /// When it is to be deleted; `None` if it has no time to live, has not finished, or is being deleted.
    expires: Option<OffsetDateTime>,
}

impl Job {
    fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode_parts(&PARTS))
    }

    fn from_value(job: &Value) -> Self {
        // Suspended jobs and jobs that are still counting their pods have other conditions.
        let ended = ["Complete", "Failed"].iter().find(|kind| conditions::holds(job, kind));
        let at = ended.and_then(|kind| conditions::find(job, kind));
        let at = at.and_then(|c| time::parse(c.str_at(&["lastTransitionTime"])).ok());
        // Mutable: users may set or extend it after the job has finished.
        let seconds = job.at(&["spec", "ttlSecondsAfterFinished"]).as_i64();
        let expires = match (at, seconds, job.is_being_deleted()) {
            // A Job that would live beyond the last time that can be represented never expires.
            (Some(at), Some(seconds), false) => at.checked_add(::time::Duration::seconds(seconds)),
            _ => None,
        };
        Self {
            uid: job.uid().into(),
            expires,
        }
    }
}

impl Expiring for Job {
    fn expires(&self) -> Option<OffsetDateTime> {
        self.expires
    }

    fn uid(&self) -> &str {
        &self.uid
    }
}

pub(crate) fn start(term: &Term) {
    let jobs = Loop {
        queue: "ttl_jobs_to_delete",
        group: "batch",
        resource: "jobs",
        service_account: "ttl-after-finished-controller",
        policy: "Foreground",
    };
    expiry::start(term, jobs, Job::from_entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use std::time::Duration;

    #[test]
    fn only_finished_jobs_with_a_time_to_live_expire() {
        let job = |spec: Value, status: &str| {
            let condition = json!({"type": "Failed", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            Job::from_value(&json!({"metadata": {"uid": "u"}, "spec": (spec), "status": {"conditions": [(condition)]}}))
        };
        assert_eq!(job(json!({}), "True").expires, None);
        assert_eq!(job(json!({"ttlSecondsAfterFinished": 5}), "False").expires, None);
        let expires = job(json!({"ttlSecondsAfterFinished": 5}), "True")
            .expires
            .expect("it has finished");
        assert_eq!(time::format(expires), "2026-01-01T00:00:05Z");
        assert_eq!(expiry::until(expires), Duration::ZERO);
    }
}
