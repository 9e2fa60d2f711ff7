//! [`NoStorage`]: the [`Storage`] behind resources that are evaluated on create and never stored.

use crate::storage::{
    Budget, Draft, Entry, Error, ListOptions, Listing, MinRevision, Precondition, Revision, Storage, Watch,
    WatchOptions,
};
use async_trait::async_trait;
use std::sync::Arc;

/// Always empty; rejects writes. Reviews have a store only for its admission chain, and this is its storage.
pub(crate) struct NoStorage;

fn refused() -> Error {
    Error::Failed("this resource is not stored".to_owned())
}

#[async_trait]
impl Storage for NoStorage {
    async fn get(&self, _key: &str, _min: MinRevision) -> Result<Option<Arc<Entry>>, Error> {
        Ok(None)
    }

    async fn list(&self, _options: ListOptions) -> Result<Listing, Error> {
        Err(refused())
    }

    async fn watch(&self, _options: WatchOptions) -> Result<Box<dyn Watch>, Error> {
        Err(refused())
    }

    async fn put(
        &self,
        _key: &str,
        _when: Precondition,
        _draft: Draft,
        _ttl_seconds: Option<u64>,
    ) -> Result<Arc<Entry>, Error> {
        Err(refused())
    }

    async fn delete(&self, _key: &str, _unchanged: Revision) -> Result<Arc<Entry>, Error> {
        Err(refused())
    }

    fn revision(&self) -> Revision {
        Revision::default()
    }

    fn count(&self) -> usize {
        0
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}
