//! The `componentstatuses` resource: a read-only [`Storage`] that probes the components on each read and
//! stores nothing (upstream's `pkg/registry/core/componentstatus`). Start at [`Components`]; probes are
//! supplied by the embedder.

use crate::apimachinery::value::Value;
use crate::json;
use crate::request::body::BoxError;
use crate::storage::{
    Budget, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch,
    WatchOptions,
};
use async_trait::async_trait;
use futures_util::future::join_all;
use std::sync::Arc;

/// A health check of one component.
#[async_trait]
pub(crate) trait Probe: Send + Sync + 'static {
    /// The component's name, such as `scheduler`.
    fn name(&self) -> &str;
    /// Probes the component. Returns its message if it is healthy. Must be cancel safe: it is dropped with
    /// the request.
    ///
    /// # Errors
    /// The reason it is unhealthy.
    async fn check(&self) -> Result<String, BoxError>;
}

/// Storage of the `componentstatuses` resource, computed on each read.
pub(crate) struct Components(Vec<Arc<dyn Probe>>);

impl Components {
    /// Serves these probes, sorted by name.
    pub(crate) fn new(mut probes: Vec<Arc<dyn Probe>>) -> Self {
        probes.sort_by(|a, b| a.name().cmp(b.name()));
        Self(probes)
    }
}

async fn status(probe: &dyn Probe) -> Arc<Entry> {
    let condition = match probe.check().await {
        Ok(message) => json!({"type": "Healthy", "status": "True", "message": message}),
        Err(why) => json!({"type": "Healthy", "status": "False", "message": (why.to_string())}),
    };
    let mut v: Value = json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": probe.name()}});
    v.set(&["conditions"], vec![condition]);
    let draft = Draft::new(&v, Vec::new());
    // Nothing is stored, so there is no resourceVersion.
    Arc::new(Entry {
        key: probe.name().into(),
        revision: Revision::default(),
        json: draft.json.into(),
        version_span: (draft.version_at, 0),
        managed_span: draft.managed_span,
        labels: draft.labels,
        fields: draft.fields,
        stale: false,
        shape: Default::default(),
        extracted: Default::default(),
        encodings: Default::default(),
    })
}

fn refused() -> Error {
    Error::Failed("component statuses are not stored".to_owned())
}

#[async_trait]
impl Storage for Components {
    async fn get(&self, key: &str, _min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        match self.0.iter().find(|p| p.name() == key) {
            None => Ok(None),
            Some(probe) => Ok(Some(status(&**probe).await)),
        }
    }

    async fn list(&self, options: ListOptions) -> Result<Listing, Error> {
        // A handful of components: limits and continuation do not apply.
        let wanted = self.0.iter().filter(|p| !options.single || p.name() == options.prefix);
        // All at once: a component that times out must not delay the others.
        let mut entries = join_all(wanted.map(|p| status(&**p))).await;
        if let Some(test) = &options.predicate.0 {
            entries.retain(|e| test.matches(e));
        }
        Ok(Listing {
            entries,
            revision: Revision::default(),
            next: None,
            remaining: None,
        })
    }

    async fn watch(&self, _options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        Err(refused())
    }

    async fn put(&self, _: &str, _: Precondition, _: Draft, _: Option<u64>) -> Result<Arc<Entry>, Error> {
        Err(refused())
    }

    async fn delete(&self, _key: &str, _unchanged: Revision) -> Result<Arc<Entry>, Error> {
        Err(refused())
    }

    fn revision(&self) -> Revision {
        Revision::default()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Predicate, VersionMatch};

    struct Fixed(&'static str, Result<&'static str, &'static str>);

    #[async_trait]
    impl Probe for Fixed {
        fn name(&self) -> &str {
            self.0
        }
        async fn check(&self) -> Result<String, BoxError> {
            Ok(self.1?.to_owned())
        }
    }

    #[tokio::test]
    async fn every_read_probes_the_components() {
        let all = Components::new(vec![
            Arc::new(Fixed("scheduler", Err("gone"))),
            Arc::new(Fixed("etcd-0", Ok("ok"))),
        ]);
        let listing = all
            .list(ListOptions {
                prefix: String::new(),
                single: false,
                version: VersionMatch::NotOlderThan(MinRevision::Latest),
                predicate: Predicate::default(),
                limit: 0,
                token: None,
            })
            .await
            .unwrap();
        let states: Vec<Value> = listing.entries.iter().map(|e| e.decode()).collect();
        assert_eq!(
            states[0],
            json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": "etcd-0"},
                "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]})
        );
        assert_eq!(states[1].get("conditions").items()[0].str_at(&["status"]), "False");
        assert!(all.get("nobody", MinRevision::Latest).await.unwrap().is_none());
    }
}
