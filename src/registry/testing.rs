//! ConfigMaps for the registry's tests: their row, and storage for them in an embedded store.

use crate::controlplane::resource_builder::{GroupVersionBuilder, ResourceBuilder};
use crate::storage::embedded::{Engine, Options};
use crate::storage::{ResourceConfig, Storage};
use std::sync::Arc;
use tempfile::TempDir;

pub(super) fn config_maps() -> ResourceBuilder {
    let (group, version) = ("", "v1");
    let row = GroupVersionBuilder { group, version }.kind("configmaps", "ConfigMap");
    row.namespaced()
}

/// Storage of ConfigMaps, its engine, which the caller shuts down, and the directory that both need.
pub(super) fn embedded() -> (Arc<dyn Storage>, Arc<Engine>, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("a store");
    let storage = engine.resource(ResourceConfig {
        prefix: "/registry/configmaps/".into(),
        fields: None,
        compressed: false,
    });
    (storage, engine, dir)
}
