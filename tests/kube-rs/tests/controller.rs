//! A controller written with kube-rs, unmodified, for a kind that its derive macro defines: finalizers,
//! status, owned objects. It goes on over a kill -9 and restart of the gateway, and resumes its watches
//! instead of listing again.
//!
//! `TORANA_BIN` names the binary; `make test` builds it and sets the variable.

#[path = "support/mod.rs"]
mod support;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::{Server, wait_for};

/// What is backed up, and how often.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tests.torana.dev",
    version = "v1",
    kind = "Backup",
    namespaced,
    status = "BackupStatus"
)]
#[kube(
    shortname = "bk",
    printcolumn = r#"{"name":"Copies","type":"integer","jsonPath":".spec.copies"}"#
)]
struct BackupSpec {
    source: String,
    #[serde(default)]
    copies: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct BackupStatus {
    copies: u32,
}

const FINALIZER: &str = "tests.torana.dev/backup";
const OBJECTS: usize = 20;

fn backup(i: usize) -> Backup {
    let spec = BackupSpec {
        source: format!("volume-{i}"),
        copies: 1,
    };
    Backup::new(&format!("b{i}"), spec)
}

/// Each Backup owns a ConfigMap, and its status repeats the spec.
async fn reconcile(
    object: Arc<Backup>,
    client: Arc<Client>,
) -> Result<Action, kube::runtime::finalizer::Error<kube::Error>> {
    let namespace = object.namespace().unwrap_or_default();
    let backups: Api<Backup> = Api::namespaced(Client::clone(&client), &namespace);
    let own = backups.clone();
    finalizer(&backups, FINALIZER, object, |event| async move {
        let maps: Api<ConfigMap> = Api::namespaced(Client::clone(&client), &namespace);
        match event {
            Event::Apply(backup) => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(backup.name_any()),
                        owner_references: backup.controller_owner_ref(&()).map(|o| vec![o]),
                        ..ObjectMeta::default()
                    },
                    data: Some([("source".to_owned(), backup.spec.source.clone())].into()),
                    ..ConfigMap::default()
                };
                let manager = PatchParams::apply("backups").force();
                maps.patch(&backup.name_any(), &manager, &Patch::Apply(&map)).await?;
                let status = json!({"status": {"copies": backup.spec.copies}});
                own.patch_status(&backup.name_any(), &PatchParams::default(), &Patch::Merge(&status))
                    .await?;
                Ok(Action::await_change())
            }
            Event::Cleanup(backup) => {
                match maps.delete(&backup.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(e)) if e.code == 404 => {}
                    other => drop(other?),
                }
                Ok(Action::await_change())
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_continues_after_the_gateway_is_killed() {
    let mut server = Server::start().await;
    let client = server.client.clone();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Backup::crd();
    definitions
        .patch(
            &definition.name_any(),
            &PatchParams::apply("test"),
            &Patch::Apply(&definition),
        )
        .await
        .expect("the derived definition is accepted");
    let name = definition.name_any();
    let established = await_condition(definitions, &name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(30), established)
        .await
        .expect("established in time")
        .expect("the watch works");

    let backups: Api<Backup> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let controller = Controller::new(backups.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(200)),
            Arc::new(client.clone()),
        )
        .for_each(|_| async {});
    let controller = tokio::spawn(controller);

    for i in 0..OBJECTS {
        backups
            .create(&PostParams::default(), &backup(i))
            .await
            .expect("created");
    }
    let all_have = |copies: u32| {
        let backups = backups.clone();
        move || {
            let backups = backups.clone();
            async move {
                for i in 0..OBJECTS {
                    let Ok(b) = backups.get(&format!("b{i}")).await else {
                        return false;
                    };
                    if b.status.is_none_or(|s| s.copies != copies) {
                        return false;
                    }
                }
                true
            }
        }
    };
    wait_for("the controller has seen every object", all_have(1)).await;

    server.kill_and_restart().await;
    let more = json!({"spec": {"copies": 2}});
    for i in 0..OBJECTS {
        backups
            .patch(&format!("b{i}"), &PatchParams::default(), &Patch::Merge(&more))
            .await
            .expect("updated");
    }
    wait_for("the controller goes on", all_have(2)).await;
    let metrics = server.get("/metrics").await;
    let lists = support::sum(
        &metrics,
        "apiserver_request_total",
        &[r#"resource="backups""#, r#"verb="LIST""#],
    );
    assert!(
        lists <= 1.0,
        "watches resume after a restart, but {lists} lists were requested"
    );

    for i in 0..OBJECTS {
        backups
            .delete(&format!("b{i}"), &DeleteParams::default())
            .await
            .expect("deletion begins");
    }
    wait_for("the finalizers are done", || {
        let (backups, maps) = (backups.clone(), maps.clone());
        async move {
            let left = backups.list(&Default::default()).await.map_or(1, |l| l.items.len());
            let owned = maps.list(&Default::default()).await.map_or(1, |l| {
                l.items.iter().filter(|m| !m.owner_references().is_empty()).count()
            });
            left + owned == 0
        }
    })
    .await;
    controller.abort();
}
