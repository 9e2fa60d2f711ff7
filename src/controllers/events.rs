//! [`Recorder`]: events by which loops report problems to users (`client-go/tools/record`).
//!
//! An event that repeats is counted in the first one. Events are written at most once; a failure is only
//! logged.

use super::loopback::{Failure, Loopback, Path};
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::cache::TtlCache;
use crate::json;
use ::time::OffsetDateTime;
use std::sync::Arc;
use std::time::Duration;

/// Events that are remembered in order to count repetitions, and for how long.
const REMEMBERED: usize = 256;
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
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

    /// Writes a warning.
    pub(crate) async fn warn(&self, object: &Reference<'_>, reason: &str, message: &str) {
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
        // client-go's scheme: unique without a read.
        let name = Str::from(format!("{}.{:x}", object.name, now.unix_timestamp_nanos()));
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": (name.as_str()), "namespace": namespace},
            "involvedObject": (object.to_value()), "reason": reason, "message": message, "type": "Warning", "count": 1,
            "source": {"component": (self.component)}, "reportingComponent": (self.component),
            "firstTimestamp": (at.as_str()), "lastTimestamp": (at.as_str())});
        self.api.create(path, &event).await?;
        self.recent.insert(key, (name, 1), REMEMBERED_FOR);
        Ok(())
    }
}
