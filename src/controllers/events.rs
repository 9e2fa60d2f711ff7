//! [`Recorder`]: events by which loops report problems to users (`client-go/tools/record`).
//!
//! An event that repeats is counted in the first one. Events are written at most once; a failure is only
//! logged.

use super::loopback::{Failure, Loopback, Path};
use crate::apimachinery::time;
use crate::apimachinery::validation::{NameForm, name_is_dns_subdomain};
use crate::apimachinery::value::{Str, Value};
use crate::cache::TtlCache;
use crate::json;
use ::time::OffsetDateTime;
use std::sync::Arc;
use std::time::Duration;

/// Events that are remembered in order to count repetitions, and for how long.
const REMEMBERED: usize = 256;
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Bytes of a message, which may quote what a client wrote: as many as the `note` of an event may have.
const MAX_MESSAGE: usize = 1024;
// The patch type with which client-go's recorder counts repetitions.
const MERGE: &str = "application/strategic-merge-patch+json";

/// The object that an event is about.
pub(crate) struct Reference<'a> {
    api_version: &'a str,
    kind: &'a str,
    /// Empty for cluster-scoped objects.
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

impl<'a> Reference<'a> {
    /// The object under a storage key.
    pub(crate) fn new(api_version: &'a str, kind: &'a str, key: &'a str, uid: &'a str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Self {
            api_version,
            kind,
            namespace,
            name,
            uid,
        }
    }

    fn to_value(&self) -> Value {
        let mut v = json!({"apiVersion": (self.api_version), "kind": (self.kind), "name": (self.name)});
        for (key, value) in [("namespace", self.namespace), ("uid", self.uid)] {
            if !value.is_empty() {
                v.set(&[key], value);
            }
        }
        v
    }
}

/// Object, reason and message.
type Key = (Str, Str, Str);

/// Writes the events of one loop.
#[derive(Clone)]
pub(crate) struct Recorder {
    api: Loopback,
    component: &'static str,
    /// The name and count of recent events.
    recent: Arc<TtlCache<Key, (Str, i64)>>,
}

impl Recorder {
    pub(crate) fn new(api: &Loopback, component: &'static str) -> Self {
        Self {
            api: api.clone(),
            component,
            recent: Arc::new(TtlCache::new(REMEMBERED)),
        }
    }

    pub(crate) async fn warn(&self, object: &Reference<'_>, reason: &str, message: &str) {
        // It is remembered, too: megabytes in each of hundreds would stay.
        let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
        if let Err(error) = self.write(object, reason, message).await {
            tracing::debug!(%error, reason, "an event was not written");
        }
    }

    async fn write(&self, object: &Reference<'_>, reason: &str, message: &str) -> Result<(), Failure> {
        let namespace = if object.namespace.is_empty() {
            // Events of cluster-scoped objects are in `default`, as client-go's recorder.
            "default"
        } else {
            object.namespace
        };
        let now = OffsetDateTime::now_utc();
        let at = time::format(now);
        let id = format!("{}/{namespace}/{}/{}", object.kind, object.name, object.uid);
        let key: Key = (id.into(), reason.into(), message.into());
        let path = Path::core(namespace, "events");
        if let Some((name, count)) = self.recent.get(&key) {
            let patch = json!({"count": (count + 1), "lastTimestamp": (at.as_str())});
            // Events expire after an hour: if the first one is gone, a new one is created.
            if self.api.patch(path.name(&name), MERGE, &patch).await.is_ok() {
                self.recent.insert(key, (name, count + 1), REMEMBERED_FOR);
                return Ok(());
            }
        }
        let name = Str::from(event_name(object.name, now.unix_timestamp_nanos()));
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": (name.as_str()), "namespace": namespace},
            "involvedObject": (object.to_value()), "reason": reason, "message": message, "type": "Warning", "count": 1,
            "source": {"component": (self.component)}, "reportingComponent": (self.component),
            "firstTimestamp": (at.as_str()), "lastTimestamp": (at.as_str())});
        self.api.create(path, &event).await?;
        self.recent.insert(key, (name, 1), REMEMBERED_FOR);
        Ok(())
    }
}

/// The name of an event about an object, as client-go's `GenerateEventName` forms it: unique without a read.
fn event_name(object: &str, nanos: i128) -> String {
    let name = format!("{object}.{nanos:x}");
    match name_is_dns_subdomain(&name, NameForm::Full).is_empty() {
        true => name,
        // Roles have names such as `system:a`, and any name may be as long as an event's.
        false => uuid::Uuid::new_v4().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, Handler, Request, Response};
    use crate::sync::Mutex;
    use async_trait::async_trait;

    /// Accepts every event, and records the length of its body.
    struct Accepting(Arc<Mutex<Vec<usize>>>);

    #[async_trait]
    impl Handler for Accepting {
        async fn handle(&self, request: Request) -> Response {
            let size = request.into_body().as_full().map_or(0, <[u8]>::len);
            self.0.lock().push(size);
            Response::new(Body::full("{}"))
        }
    }

    #[tokio::test]
    async fn messages_are_truncated_in_events_and_in_the_cache() {
        let sizes: Arc<Mutex<Vec<usize>>> = Arc::default();
        let handler: Arc<dyn Handler> = Arc::new(Accepting(sizes.clone()));
        let recorder = Recorder::new(&Loopback::manager(&handler, "test"), "test");
        let object = Reference::new("v1", "ConfigMap", "x/a", "u");
        let message = "ä".repeat(MAX_MESSAGE);
        recorder.warn(&object, "Reason", &message).await;
        let key: Key = ("ConfigMap/x/a/u".into(), "Reason".into(), message[..MAX_MESSAGE].into());
        assert!(recorder.recent.get(&key).is_some());
        let sizes = sizes.lock().clone();
        assert!(sizes.len() == 1 && sizes[0] < 3 * MAX_MESSAGE, "{sizes:?}");
    }

    #[test]
    fn events_of_any_object_have_valid_names() {
        assert_eq!(event_name("a.b", 255), "a.b.ff");
        let long = "x".repeat(250);
        for object in ["system:a", &long] {
            let name = event_name(object, 255);
            assert!(name_is_dns_subdomain(&name, NameForm::Full).is_empty(), "{name}");
        }
    }
}
