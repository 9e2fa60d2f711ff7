//! The cost of processing one object in a write, without sockets or a store: decode, default, validate, encode;
//! patch; apply; a table. Run with `cargo bench --bench objects`; part of `make bench`. Times are the minimum over
//! many batches, because noise only adds.

use http::HeaderMap;
use http_body::Body as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::admission::{Admission, AdmitAll};
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::authn::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser};
use torana::authz::{AlwaysAllow, Rbac, rbac};
use torana::controlplane::reviews::ReviewDependencies;
use torana::controlplane::{self, ControlPlane, KubeletConfig};
use torana::endpoints::negotiate::{Media, Negotiated, Transform};
use torana::endpoints::options::Query;
use torana::endpoints::respond::{self, list::ListMeta};
use torana::registry::StoreLookup;
use torana::registry::resource::{Backing, Resource};
use torana::registry::schema::ManagerInfo;
use torana::registry::strategy::Change;
use torana::storage::embedded::{Engine, Options, ResourceConfig};
use torana::storage::{Draft, Listing, Revision, Storage};
use torana::tasks::TaskGroup;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct NoTokens;

#[async_trait::async_trait]
impl TokenAuthenticator for NoTokens {
    async fn authenticate_token(&self, _: PresentedToken<'_>) -> Result<Option<TokenUser>, AuthenticationError> {
        Ok(None)
    }
}

const NOW: &str = "2026-01-02T03:04:05Z";

/// A pod as created by a Deployment: two containers, probes, volumes, environment variables.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d9c7b8f6d-x2x4q","namespace":"shop",
"labels":{"app":"web","pod-template-hash":"5d9c7b8f6d","tier":"front"},"annotations":{"prometheus.io/scrape":"true"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d9c7b8f6d","uid":"0c4f8c4e-31d9-4c21-8a56-3e1e9f2a9b11","controller":true,"blockOwnerDeletion":true}]},
"spec":{"serviceAccountName":"web","nodeSelector":{"kubernetes.io/os":"linux"},"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}],
"initContainers":[{"name":"migrate","image":"registry.example/web:1.2.3","args":["migrate","--wait"],"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]}],
"containers":[{"name":"web","image":"registry.example/web:1.2.3","command":["/web"],"ports":[{"name":"http","containerPort":8080},{"name":"metrics","containerPort":9090}],
"env":[{"name":"LEVEL","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}],
"resources":{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"1","memory":"512Mi"}},
"livenessProbe":{"httpGet":{"path":"/live","port":"http"}},"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":5},
"securityContext":{"runAsNonRoot":true,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}},
"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true},{"name":"scratch","mountPath":"/tmp"}]},
{"name":"proxy","image":"registry.example/proxy:9","ports":[{"containerPort":15001}],"resources":{"requests":{"cpu":"50m","memory":"64Mi"}}}],
"volumes":[{"name":"config","configMap":{"name":"web"}},{"name":"scratch","emptyDir":{}}]}}"#;

const STRATEGIC: &str = r#"{"metadata":{"annotations":{"note":"x"}},"spec":{"containers":[{"name":"web","image":"registry.example/web:1.2.4"}],
"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"},{"key":"spot","operator":"Exists"}]}}"#;

fn applied(manager: usize) -> Value {
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-5d9c7b8f6d-x2x4q","namespace":"shop","labels":{{"owner-{manager}":"yes"}}}},
"spec":{{"containers":[{{"name":"side-{manager}","image":"registry.example/side:{manager}","env":[{{"name":"N","value":"{manager}"}}]}}]}}}}"#
    );
    json::decode(text.as_bytes()).expect("JSON")
}

/// The minimum time of one call.
fn measure(name: &str, goal: Duration, mut work: impl FnMut()) {
    // Slow work runs in batches of one, because a long batch would be interrupted by the scheduler.
    let since = Instant::now();
    work();
    let batch = if since.elapsed() < Duration::from_millis(1) {
        20
    } else {
        1
    };
    let mut best = Duration::MAX;
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        let since = Instant::now();
        for _ in 0..batch {
            work();
        }
        best = best.min(since.elapsed() / batch);
    }
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    println!("{name:48} {:10.1} µs   goal {:8.1} µs", us(best), us(goal));
}

fn plane(engine: &Arc<Engine>) -> ControlPlane {
    let config = controlplane::Config {
        service_ranges: vec![("10.0.0.0".parse().expect("an address"), 24)],
        node_ports: (30000, 32767),
        event_ttl_seconds: 3600,
        review_dependencies: ReviewDependencies {
            tokens: Arc::new(NoTokens),
            authorizer: Arc::new(AlwaysAllow),
            anonymous: true,
            roles: Rbac::fixed(rbac::Index::default()),
            audiences: vec![],
        },
        components: vec![],
        kubelets: KubeletConfig {
            certificate_authority: None,
            client: None,
            preferred_address_types: vec!["InternalIP".into()],
            port: 10250,
            timeout: Duration::from_secs(5),
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            tasks: TaskGroup::new("bench"),
            policy: Default::default(),
            names: Arc::new(torana::proxy::resolver::SystemResolver),
        },
        tokens: None,
        definitions: Arc::new(torana::extensions::definitions::CustomResourceDefinition),
    };
    let storage = |row: &Resource| -> Arc<dyn Storage> {
        match &row.backing {
            Backing::Stored { prefix } => engine.resource(ResourceConfig {
                prefix: prefix.clone(),
                fields: None,
            }),
            _ => unreachable!("only rows with a store of their own are asked for one"),
        }
    };
    let admission: Arc<dyn Admission> = Arc::new(AdmitAll);
    controlplane::build(config, &StoreLookup::default(), &storage, &admission).expect("a usable range")
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(dir.path(), Options::default()).expect("a store");
    let plane = plane(&engine);
    let resource = plane.store("", "pods").resource().clone();
    let (schema, strategy) = (&resource.schema, &resource.strategy);
    let micros = Duration::from_micros;

    let made = || {
        let mut pod = json::decode(POD.as_bytes()).expect("JSON");
        schema.normalize(&mut pod).expect("a pod");
        strategy.default(&mut pod);
        strategy.prepare(&mut pod, Change::Create);
        pod
    };
    let errors = strategy.validate(&made(), Change::Create);
    assert!(errors.is_empty(), "{errors:?}");
    measure("pod: decode, default, validate, encode", micros(40), || {
        let pod = made();
        black_box(strategy.validate(&pod, Change::Create));
        black_box(json::to_vec(&pod));
    });

    let pod = made();
    let patch = json::decode(STRATEGIC.as_bytes()).expect("JSON");
    measure("pod: strategic merge patch", micros(30), || {
        black_box(
            schema
                .strategic_merge(&pod, &patch)
                .expect("a built-in")
                .expect("applies"),
        );
    });

    let who = |manager| ManagerInfo {
        manager,
        subresource: "",
        now: NOW,
        api_version: "v1",
    };
    let mut owned = pod.clone();
    schema
        .manage_update(None, &mut owned, &who("maker"), &["status"])
        .expect("managed");
    for (i, manager) in ["one", "two", "three"].into_iter().enumerate() {
        owned = schema
            .apply(Some(&owned), applied(i), &who(manager), false, &["status"])
            .expect("no conflict");
    }
    let mut again = applied(2);
    again.set(&["metadata", "labels", "owner-2"], "changed");
    measure("pod: server-side apply, three appliers", micros(150), || {
        let out = schema.apply(Some(&owned), again.clone(), &who("three"), false, &["status"]);
        black_box(out.expect("no conflict"));
    });

    let entry = Arc::new(Draft::new(&owned, vec![]).into_entry("shop/web-5d9c7b8f6d-x2x4q", Revision(7)));
    println!("a pod with managed fields has {} bytes", entry.json.len());
    let answer = |transform| {
        let listing = Listing {
            entries: vec![entry.clone(); 500],
            revision: Revision(7),
            next: None,
            remaining: None,
        };
        let negotiated = Negotiated {
            media: Media::Json,
            transform,
            pretty: false,
        };
        let meta = ListMeta::default();
        let response = respond::list::list(
            listing,
            &meta,
            &resource,
            negotiated,
            &HeaderMap::new(),
            &Query::default(),
            None,
        );
        let mut body = response.expect("an answer").into_body();
        let mut waiting = std::task::Context::from_waker(std::task::Waker::noop());
        while let std::task::Poll::Ready(Some(frame)) = std::pin::Pin::new(&mut body).poll_frame(&mut waiting) {
            black_box(frame.expect("bytes"));
        }
    };
    measure("table of 500 pods", micros(3000), || answer(Transform::Table("v1")));
    measure("metadata of 500 pods", micros(3000), || {
        answer(Transform::PartialList("v1"))
    });
    engine.shutdown();
}
