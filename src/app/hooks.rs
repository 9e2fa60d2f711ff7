//! Post-start hooks and health checks of the servers, under upstream's names: `/readyz?verbose` lists them,
//! and operators and tools exclude checks by name. The work of a hook is done by the module it calls.

use super::store::Stores;
use super::trust;
use crate::aggregator::Aggregator;
use crate::apimachinery::status::Status;
use crate::client::InformerHandle;
use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap::{
    self, Advertise, ClusterAuthenticationInfo, flowcontrol, identity_lease, priority_classes, rbac, retry,
};
use crate::extensions::custom_resources::{CustomResources, Definition};
use crate::extensions::naming::Naming;
use crate::pki::certs::DynamicKeyPair;
use crate::server::generic::GenericServer;
use crate::server::health::{Endpoints, HealthCheck};
use crate::tasks::Signal;
use crate::tasks::compute::ComputePool;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Time limit for creating the default roles and classes; exceeding it ends the process.
const DEFAULTS: Duration = Duration::from_secs(30);
/// Time limit for creating the flow control defaults.
const FLOW_CONTROL: Duration = Duration::from_secs(300);

/// Objects that every cluster has could not be created.
#[derive(Debug, thiserror::Error)]
#[error("making the {what}: {source}")]
struct NotMade {
    what: &'static str,
    source: Status,
}

impl NotMade {
    /// For `map_err`.
    fn of(what: &'static str) -> impl FnOnce(Status) -> Self {
        move |source| Self { what, source }
    }
}

/// Adds the hooks that create the default objects.
pub(crate) fn defaults(server: &mut GenericServer, plane: &Arc<ControlPlane>) {
    let p = plane.clone();
    server.add_post_start_hook("rbac/bootstrap-roles", move |_| async move {
        // Retried: on a shared etcd, another gateway may be creating the same objects.
        let made = retry(DEFAULTS, || rbac::ensure(&p)).await;
        Ok(made.map_err(NotMade::of("default roles"))?)
    });
    let p = plane.clone();
    server.add_post_start_hook("scheduling/bootstrap-system-priority-classes", move |_| async move {
        let made = retry(DEFAULTS, || priority_classes::ensure(&p)).await;
        Ok(made.map_err(NotMade::of("system priority classes"))?)
    });
    let p = plane.clone();
    server.add_post_start_hook("priority-and-fairness-config-producer", move |cx| async move {
        let made = retry(FLOW_CONTROL, || flowcontrol::ensure(&p)).await;
        made.map_err(NotMade::of("flow control defaults"))?;
        flowcontrol::spawn_reconciler(&cx.tasks, p);
        Ok(())
    });
}

/// Adds the hooks that complete once the informers of this server have synced: those of authorization, and
/// those of the configurations and policies of admission.
pub(crate) fn informers(server: &mut GenericServer, access: &[Signal], admission: &[Signal]) {
    for (name, informers) in [
        ("start-apiserver-admission-initializer", admission),
        ("generic-apiserver-start-informers", access),
    ] {
        let informers = informers.to_vec();
        server.add_post_start_hook(name, move |_| async move {
            for informer in informers {
                informer.wait().await;
            }
            Ok(())
        });
    }
}

/// Adds the hook that passes once the caches of all resources are filled, or the time limit has passed.
pub(crate) fn storage_readiness(server: &mut GenericServer, stores: &Arc<Stores>, within: Duration) {
    let stores = stores.clone();
    server.add_post_start_hook("storage-readiness", move |_| async move {
        stores.loaded(within).await;
        Ok(())
    });
}

/// Adds the hook that presents reloaded proxy client certificates to backends.
pub(crate) fn proxy_client_certificate(server: &mut GenericServer, pair: Arc<DynamicKeyPair>, aggregator: Aggregator) {
    server.add_post_start_hook("aggregator-reload-proxy-client-cert", move |cx| async move {
        trust::follow_identity(pair, aggregator, &cx.tasks);
        Ok(())
    });
}

/// Adds the hooks that renew the Lease of this server, and delete those of servers that no longer run.
pub(crate) fn identity_leases(server: &mut GenericServer, plane: &Arc<ControlPlane>, host_name: &str) {
    let (p, host_name) = (plane.clone(), host_name.to_owned());
    server.add_post_start_hook("start-kube-apiserver-identity-lease-controller", move |cx| async move {
        identity_lease::spawn(&cx.tasks, p, &host_name);
        Ok(())
    });
    let p = plane.clone();
    server.add_post_start_hook(
        "start-kube-apiserver-identity-lease-garbage-collector",
        move |cx| async move {
            identity_lease::spawn_garbage_collector(&cx.tasks, p);
            Ok(())
        },
    );
}

/// Adds the hooks that create and maintain the system namespaces, the server's own Service and endpoints, the
/// record of cluster IPs, the default ServiceCIDR, the date since which legacy tokens are tracked, and the
/// trust bundle for backends. Upstream has one hook for each; here a single pass creates them all, so the
/// other hooks only wait for it.
pub(crate) fn system_objects(
    server: &mut GenericServer,
    plane: &Arc<ControlPlane>,
    advertise: Advertise,
    trust: watch::Receiver<Arc<ClusterAuthenticationInfo>>,
) {
    let made = Signal::new("system objects");
    for name in [
        "bootstrap-controller",
        "start-service-ip-repair-controllers",
        "start-cluster-authentication-info-controller",
        "start-kubernetes-service-cidr-controller",
        "start-legacy-token-tracking-controller",
    ] {
        let made = made.clone();
        server.add_post_start_hook(name, move |_| async move {
            made.wait().await;
            Ok(())
        });
    }
    let plane = plane.clone();
    server.add_post_start_hook("start-system-namespaces-controller", move |cx| async move {
        // Cloned: the guard of a watch channel must not be held across an await.
        let now = trust.borrow().clone();
        let outcome = bootstrap::ensure(&plane, &advertise, &now).await;
        bootstrap::spawn_reconcilers(&cx.tasks, plane, advertise, trust);
        outcome.map_err(NotMade::of("system objects"))?;
        made.fire();
        Ok(())
    });
}

/// Adds the hooks that follow the CustomResourceDefinitions, with `feed`, and run their controllers. The
/// signal fires when all stored definitions have been read.
pub(crate) fn definitions(
    server: &mut GenericServer,
    plane: &ControlPlane,
    custom: CustomResources,
    feed: InformerHandle<Definition>,
    compute: &ComputePool,
    telemetry: &Telemetry,
) -> Signal {
    let store = plane.store("apiextensions.k8s.io", "customresourcedefinitions").clone();
    let naming = Naming::new(store, custom.definitions(), telemetry);
    let synced = custom.definitions().synced().clone();
    // Until it fires, an unknown path answers 503 instead of 404: a client must not take a definition for
    // deleted because it has not been read yet.
    let complete = server.add_paths_complete_signal("CRDInformerHasNotSynced");
    server.add_post_start_hook("start-apiextensions-informers", move |cx| async move {
        let stop = cx.tasks.stop_signal().clone();
        cx.tasks.spawn("definition informer", async move {
            // Biased towards stopping, because an informer never ends on its own.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = feed.run() => {}
            }
        });
        Ok(())
    });
    let compute = compute.clone();
    server.add_post_start_hook("start-apiextensions-controllers", move |cx| async move {
        naming.start(&cx.tasks, compute.clone());
        custom.start(&cx.tasks, &compute);
        Ok(())
    });
    let known = synced.clone();
    server.add_post_start_hook("crd-informer-synced", move |_| async move {
        known.wait().await;
        complete.fire();
        Ok(())
    });
    synced
}

/// Makes `/readyz` fail until all informers have synced.
pub(crate) fn informers_synced(server: &mut GenericServer, synced: Vec<Signal>) {
    server.add_health_check(informer_sync(synced));
}

fn informer_sync(synced: Vec<Signal>) -> HealthCheck {
    HealthCheck::new("informer-sync", Endpoints::READYZ, move || {
        match synced.iter().filter(|s| !s.fired()).count() {
            0 => Ok(()),
            n => Err(format!("{n} informers not started or synced yet")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_waits_for_every_informer() {
        let (a, b) = (Signal::new("a"), Signal::new("b"));
        let check = informer_sync(vec![a.clone(), b.clone()]);
        let error = || check.run().map_err(|e| e.to_string());
        let waits_for = |n: usize| Err(format!("{n} informers not started or synced yet"));
        assert_eq!(error(), waits_for(2));
        a.fire();
        assert_eq!(error(), waits_for(1));
        b.fire();
        assert_eq!(error(), Ok(()));
    }
}
