//! Deletes finished Jobs after their `ttlSecondsAfterFinished` (`pkg/controller/ttlafterfinished`).

use super::loopback::{Failure, Path, found};
use super::term::{Term, until};
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::json;
use crate::storage::Entry;
use ::time::OffsetDateTime;
use std::sync::LazyLock;
use std::time::Duration;

const QUEUE: &str = "ttl_jobs_to_delete";

static PARTS: LazyLock<Mask> = LazyLock::new(|| {
    Mask::of(&[
        "metadata.{uid,deletionTimestamp}",
        "spec.ttlSecondsAfterFinished",
        "status.conditions",
    ])
});

/// A Job.
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
        let ended = ["Complete", "Failed"].iter().find(|kind| conditions::holds(job, kind));
        let at = ended.and_then(|kind| conditions::find(job, kind));
        let at = at.and_then(|c| time::parse(c.str_at(&["lastTransitionTime"])).ok());
        let seconds = job.at(&["spec", "ttlSecondsAfterFinished"]).as_i64();
        let expires = match (at, seconds, job.is_being_deleted()) {
            (Some(at), Some(seconds), false) => at.checked_add(::time::Duration::seconds(seconds)),
            _ => None,
        };
        Self {
            uid: job.uid().into(),
            expires,
        }
    }
}

pub fn start(term: &Term) {
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let jobs = term.inform(("batch", "jobs"), Job::from_entry, |jobs| {
        jobs.subscribe(move |change: &Change<'_, Job>| {
            if let Some(expires) = change.new.and_then(|job| job.expires) {
                changed.add_after(change.key.into(), until(expires));
            }
        });
    });
    let Some(jobs) = jobs else { return };
    let api = term.client("ttl-after-finished-controller");
    let later = queue.clone();
    term.process(QUEUE, &queue, 1, move |key: Str| {
        let (api, jobs, later) = (api.clone(), jobs.clone(), later.clone());
        async move {
            let Some(job) = jobs.get(&key) else { return Ok::<_, Failure>(()) };
            let (Some(expires), Some((namespace, name))) = (job.expires, key.split_once('/')) else {
                return Ok(());
            };
            // The time to live may have been raised.
            match until(expires) {
                Duration::ZERO => {}
                rest => {
                    later.add_after(key.clone(), rest);
                    return Ok(());
                }
            }
            let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
                "preconditions": {"uid": (job.uid.as_str())}});
            let path = Path::of("batch", "v1", namespace, "jobs").name(name);
            match found(api.delete(path, &options).await.map(|()| Value::Null)) {
                // Another Job of that name.
                Err(e) if e.code == 409 => Ok(()),
                other => other.map(drop),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(until(expires), Duration::ZERO);
    }
}
