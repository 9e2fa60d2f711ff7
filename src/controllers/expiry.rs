//! Deletes objects when they expire. Start at [`start`]; [`Expiring`] decides when. Upstream's loops list all
//! objects at an interval; here each object has a timer in the work queue.

use super::loopback::{Failure, Path, found};
use super::term::Term;
use crate::apimachinery::value::Str;
use crate::client::Change;
use crate::json;
use crate::storage::Entry;
use crate::tasks::WorkQueue;
use ::time::OffsetDateTime;
use std::sync::Arc;
use std::time::Duration;

/// The informer's record of an object that may expire.
pub(crate) trait Expiring: Send + Sync + 'static {
    /// The time of its deletion; `None` if it does not expire.
    fn expires(&self) -> Option<OffsetDateTime>;
    fn uid(&self) -> &str;
}

/// The parameters of a loop that deletes expired objects.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub queue: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub service_account: &'static str,
    /// The propagation policy of the deletion: `Background`, `Foreground` or `Orphan`.
    pub policy: &'static str,
}

/// The time until `at`; zero if it has passed.
pub(crate) fn until(at: OffsetDateTime) -> Duration {
    Duration::try_from(at - OffsetDateTime::now_utc()).unwrap_or_default()
}

pub(crate) fn start<T: Expiring>(term: &Term, of: Loop, parse: fn(&Entry) -> T) {
    let queue = term.queue::<Str>(of.queue);
    let changed = queue.clone();
    let objects = term.inform((of.group, of.resource), parse, |objects| {
        objects.subscribe(move |change: &Change<'_, T>| schedule(&changed, change));
    });
    let Some(objects) = objects else { return };
    let api = term.client(of.service_account);
    let later = queue.clone();
    term.process(of.queue, &queue, 1, move |key: Str| {
        let (api, objects, later) = (api.clone(), objects.clone(), later.clone());
        async move {
            let Some(object) = objects.get(&key) else {
                return Ok::<_, Failure>(());
            };
            let Some(at) = object.expires() else { return Ok(()) };
            // It may have been changed to live longer.
            match until(at) {
                Duration::ZERO => {}
                rest => {
                    later.add_after(key.clone(), rest);
                    return Ok(());
                }
            }
            let options = json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "propagationPolicy": (of.policy),
                // The informer may lag behind: the name may belong to a new object already.
                "preconditions": {"uid": (object.uid())}});
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            let path = Path::of(of.group, "v1", namespace, of.resource).name(name);
            match found(api.delete(path, &options).await) {
                // The precondition failed: another object has this name, with its own timer.
                Err(e) if e.code == 409 => Ok(()),
                other => other.map(drop),
            }
        }
    });
}

/// Sets the timer of an object after a change.
fn schedule<T: Expiring>(queue: &WorkQueue<Str>, change: &Change<'_, T>) {
    let expires = |object: Option<&Arc<T>>| object.and_then(|object| object.expires());
    match (expires(change.old), expires(change.new)) {
        // An earlier timer of the object stays and is harmless: the worker checks the time again.
        (_, Some(at)) => queue.add_after(change.key.into(), until(at)),
        // A timer without an object would stay until it is due, which may be in decades.
        (Some(_), None) => queue.remove(&change.key.into()),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Backoff;
    use crate::telemetry::Telemetry;
    use futures_util::FutureExt as _;

    struct Token(OffsetDateTime);

    impl Expiring for Token {
        fn expires(&self) -> Option<OffsetDateTime> {
            Some(self.0)
        }

        fn uid(&self) -> &str {
            "u"
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_of_a_deleted_object_is_removed() {
        let token = Arc::new(Token(OffsetDateTime::now_utc() + Duration::from_secs(10)));
        for deleted in [false, true] {
            let queue = WorkQueue::new(Backoff::CONTROLLER, Telemetry::new().queue("q"));
            let change = |old, new| schedule(&queue, &Change { key: "a/t", old, new });
            change(None, Some(&token));
            if deleted {
                change(Some(&token), None);
            }
            tokio::time::advance(Duration::from_secs(20)).await;
            assert_eq!(queue.next().now_or_never().is_some(), !deleted);
        }
    }
}
