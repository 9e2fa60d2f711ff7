//! The hooks and health checks of the aggregator: when its informers and controllers start, and what waits for
//! what.

use super::{InformerHandles, Informers};
use crate::aggregator::autoregister::AutoRegister;
use crate::aggregator::availability::{Availability, ControllerKind};
use crate::aggregator::discovery::Collector;
use crate::aggregator::openapi::Downloader;
use crate::aggregator::registration::Registration;
use crate::apimachinery::value::Str;
use crate::server::generic::GenericServer;
use crate::server::health::{Endpoints, HealthCheck};
use std::sync::Arc;

/// The controllers that the hooks start. All of them subscribe to the informers when they are built, so that none
/// misses an object.
pub(super) struct Controllers {
    pub availability: Arc<Availability>,
    pub registration: Arc<Registration>,
    pub collector: Arc<Collector>,
    /// The downloaders of OpenAPI v3 documents and of v2 documents.
    pub downloaders: [Arc<Downloader>; 2],
    pub autoregister: Arc<AutoRegister>,
}

impl Controllers {
    /// Adds the hooks and health checks, under upstream's names.
    pub(super) fn add_hooks(self, server: &mut GenericServer, informers: &Informers, handles: InformerHandles) {
        let initiated = server.add_paths_complete_signal("APIServiceRegistrationControllerInitiated");
        self.start_informers(server, informers, handles);
        let (first, fire) = (informers.api_services.synced().clone(), initiated.clone());
        server.add_post_start_hook("apiservice-registration-controller", move |_| async move {
            // The informer's callbacks create the routes, so after its initial sync all of them exist.
            first.wait().await;
            fire.fire();
            Ok(())
        });
        let ready = initiated.clone();
        server.add_post_start_hook("apiservice-wait-for-first-sync", move |_| async move {
            ready.wait().await;
            Ok(())
        });
        self.start_availability(server, informers);
        let (c, ready) = (self.collector, initiated.clone());
        server.add_post_start_hook("apiservice-discovery-controller", move |cx| async move {
            ready.wait().await;
            c.run_first_pass(&cx.tasks).await;
            Ok(())
        });
        let hooks = ["apiservice-openapiv3-controller", "apiservice-openapi-controller"];
        for (name, d) in hooks.into_iter().zip(self.downloaders) {
            server.add_post_start_hook(name, move |cx| async move {
                // Not awaited: backends that are slow in OpenAPI must not delay readiness.
                d.start(&cx.tasks);
                Ok(())
            });
        }
        let r = self.autoregister.clone();
        let defined = informers.definitions.synced().clone();
        server.add_post_start_hook("kube-apiserver-autoregistration", move |cx| async move {
            let stop = cx.tasks.stop_signal().clone();
            cx.tasks.spawn_until_stopped("autoregistration", async move {
                initiated.wait().await;
                r.run().await;
                // `keep` deletes APIServices without a definition, so all definitions must be known.
                defined.wait().await;
                r.keep(&stop).await;
            });
            Ok(())
        });
        let r = self.autoregister;
        server.add_health_check(HealthCheck::new("autoregister-completion", Endpoints::ALL, move || {
            r.completion()
        }));
    }

    fn start_informers(&self, server: &mut GenericServer, informers: &Informers, handles: InformerHandles) {
        let (served, probed) = (self.registration.clone(), self.availability.clone());
        let referred = informers.references.synced();
        server.add_post_start_hook("start-kube-aggregator-informers", move |cx| async move {
            cx.tasks
                .spawn_until_stopped("reference informers", handles.references.run());
            cx.tasks.spawn_until_stopped("reference users", async move {
                let renew = move |name: &Str| {
                    served.renew(name);
                    probed.enqueue(name);
                };
                handles.reference_users.run(renew).await;
            });
            cx.tasks.spawn_until_stopped("apiservice informer", async move {
                // References first: otherwise an APIService would briefly count as one whose certificates are
                // missing.
                for known in referred {
                    known.wait().await;
                }
                handles.api_services.run().await;
            });
            cx.tasks.spawn_until_stopped("service informer", handles.services.run());
            cx.tasks
                .spawn_until_stopped("endpointslice informer", handles.endpoint_slices.run());
            cx.tasks
                .spawn_until_stopped("definition informer", handles.definitions.run());
            Ok(())
        });
    }

    fn start_availability(&self, server: &mut GenericServer, informers: &Informers) {
        let api_services = informers.api_services.synced();
        let [services, slices] = [informers.services.synced(), informers.endpoint_slices.synced()];
        // The remote controller would report Services as missing before the first list of them is known.
        let controllers = [
            (
                "apiservice-status-local-available-controller",
                "local availability start",
                ControllerKind::Local,
                vec![api_services.clone()],
            ),
            (
                "apiservice-status-remote-available-controller",
                "remote availability start",
                ControllerKind::Remote,
                vec![api_services.clone(), services.clone(), slices.clone()],
            ),
        ];
        for (hook, task, kind, synced) in controllers {
            let availability = self.availability.clone();
            server.add_post_start_hook(hook, move |cx| async move {
                let tasks = cx.tasks.clone();
                cx.tasks.spawn_until_stopped(task, async move {
                    for s in synced {
                        s.wait().await;
                    }
                    availability.start(kind, &tasks);
                });
                Ok(())
            });
        }
    }
}
