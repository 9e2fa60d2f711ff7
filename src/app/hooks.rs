//! Post-start hooks and checks of the servers, under upstream's names.

use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap::{self, Advertise, Trust, flowcontrol, priority_classes, rbac, retry};
use crate::extensions::naming::Naming;
use crate::server::generic::GenericServer;
use crate::server::health::{Endpoints, HealthCheck};
use crate::tasks::Signal;
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long the default roles and classes may take; longer, and the process ends.
const DEFAULTS: Duration = Duration::from_secs(30);
/// How long the flow control defaults may take.
const FLOW_CONTROL: Duration = Duration::from_secs(300);

/// Makes the default objects.
pub fn defaults(server: &mut GenericServer, plane: &Arc<ControlPlane>) {
    let p = plane.clone();
    server.add_post_start_hook("rbac/bootstrap-roles", move |_| async move {
        let made = retry(DEFAULTS, || rbac::ensure(&p)).await;
        made.map_err(|e| format!("making the default roles: {e}"))
    });
    let p = plane.clone();
    server.add_post_start_hook("scheduling/bootstrap-system-priority-classes", move |_| async move {
        let made = retry(DEFAULTS, || priority_classes::ensure(&p)).await;
        made.map_err(|e| format!("making the system priority classes: {e}"))
    });
    let p = plane.clone();
    server.add_post_start_hook("priority-and-fairness-config-producer", move |cx| async move {
        let made = retry(FLOW_CONTROL, || flowcontrol::ensure(&p)).await;
        made.map_err(|e| format!("making the flow control defaults: {e}"))?;
        flowcontrol::keep(&cx.tasks, p);
        Ok(())
    });
}

/// Makes the system namespaces, the server's own Service and endpoints, the record of cluster IPs and the trust of backends,
/// and keeps them. One pass makes them all; it is known by the names of upstream's hooks that make one of them each.
pub fn system_objects(
    server: &mut GenericServer,
    plane: &Arc<ControlPlane>,
    advertise: Advertise,
    trust: watch::Receiver<Arc<Trust>>,
) {
    let made = Signal::new("system objects");
    for name in [
        "bootstrap-controller",
        "start-service-ip-repair-controllers",
        "start-cluster-authentication-info-controller",
    ] {
        let made = made.clone();
        server.add_post_start_hook(name, move |_| async move {
            made.wait().await;
            Ok(())
        });
    }
    let plane = plane.clone();
    server.add_post_start_hook("start-system-namespaces-controller", move |cx| async move {
        let now = trust.borrow().clone();
        let outcome = bootstrap::ensure(&plane, &advertise, &now).await;
        bootstrap::keep(&cx.tasks, plane, advertise, trust);
        outcome.map_err(|e| format!("making the system objects: {e}"))?;
        made.fire();
        Ok(())
    });
}

/// Follows the CustomResourceDefinitions and gives them their names. The signal fires when all stored ones are known.
pub fn definitions(server: &mut GenericServer, plane: &ControlPlane, telemetry: &Telemetry) -> Signal {
    let store = plane.store("apiextensions.k8s.io", "customresourcedefinitions").clone();
    let (naming, feed) = Naming::new(store, telemetry);
    let synced = naming.synced().clone();
    let complete = server.add_paths_complete_signal("CRDInformerHasNotSynced");
    server.add_post_start_hook("start-apiextensions-informers", move |cx| async move {
        let stop = cx.tasks.stop_signal().clone();
        cx.tasks.spawn("definition informer", async move {
            // Stopping first: an informer has no end of its own.
            tokio::select! {
                biased;
                () = stop.wait() => {}
                () = feed.run() => {}
            }
        });
        Ok(())
    });
    server.add_post_start_hook("start-apiextensions-controllers", move |cx| async move {
        naming.start(&cx.tasks);
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

/// `/readyz` waits until all informers have seen what is stored.
pub fn informers_synced(server: &mut GenericServer, synced: Vec<Signal>) {
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
        let waits_for = |n: usize| Err(format!("{n} informers not started or synced yet"));
        assert_eq!(check.ask(), waits_for(2));
        a.fire();
        assert_eq!(check.ask(), waits_for(1));
        b.fire();
        assert_eq!(check.ask(), Ok(()));
    }
}
