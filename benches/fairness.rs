//! The cost of priority and fairness for a request that need not wait: classification, estimate, a place in
//! the level, and giving it back. The limiter of requests in flight, which applies without priority and
//! fairness, for comparison.

use http::Method;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torana::apimachinery::Value;
use torana::testing::flowcontrol::{
    self, FlowController, Mandatory, MaxInFlight, ObjectCounts, RequestClass, StoredObjects, Telemetry,
};
use torana::testing::request::{RequestInfo, UserInfo};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Thousand;

impl ObjectCounts for Thousand {
    fn stored(&self, _: &str, _: &str) -> Option<StoredObjects> {
        Some(StoredObjects {
            count: 1_000,
            average_bytes: 1_000,
        })
    }
}

fn measure(name: &str, once: impl Fn()) {
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let since = Instant::now();
        for _ in 0..1_000 {
            once();
        }
        best = best.min(since.elapsed() / 1_000);
    }
    println!("{name:64} {:8.3} µs", best.as_secs_f64() * 1e6);
}

fn main() {
    let telemetry = Telemetry::new();
    let [schemas, levels] = flowcontrol::mandatory();
    let controller = FlowController::new(600, Mandatory { schemas, levels }, Thousand, &telemetry);
    let [schemas, levels]: [Vec<Value>; 2] = flowcontrol::all();
    controller.digest(&schemas, &levels);
    let request = |method, uri: &str| {
        let uri = uri.parse().expect("a URI");
        Arc::new(RequestInfo::resolve(&method, &uri).expect("a request"))
    };
    let user = |name, group| Arc::new(UserInfo::system(name, &[group, "system:authenticated"]));
    let one = request(Method::GET, "/api/v1/namespaces/default/configmaps/a");
    let list = request(Method::GET, "/api/v1/namespaces/default/configmaps");
    let write = request(Method::POST, "/api/v1/namespaces/default/configmaps");
    for (who, user) in [
        ("a user (global-default)", user("jane", "dev")),
        ("an administrator (exempt)", user("root", "system:masters")),
        ("a node", user("system:node:a", "system:nodes")),
    ] {
        for (what, info) in [("get", &one), ("list", &list), ("create", &write)] {
            measure(&format!("priority and fairness: {what} of {who}"), || {
                drop(black_box(controller.enter(&user, info, "limit=500")));
            });
        }
    }
    let limits = MaxInFlight::new(400, 200, &Telemetry::new().inflight);
    measure("max in flight", || {
        drop(black_box(limits.try_acquire(RequestClass::ReadOnly, "jane", false)));
    });
}
