use super::*;
use crate::admission::testing;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::json;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use crate::storage::{Draft, MinRevision, Storage};
use proptest::prelude::*;

/// An on-disk store with these quotas in namespace `ns`.
struct Served {
    quotas: Arc<dyn Storage>,
    plugin: ResourceQuota,
    _engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

fn quota(name: &str, spec: Value, hard: Value, used: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": "ns",
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "subresource": "status",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:used": {"f:pods": {}}}}}]},
        "spec": (spec), "status": {"hard": (hard), "used": (used)}})
}

async fn serve(quotas: &[Value], config: QuotaConfig) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let storage = engine.resource(ResourceConfig {
        prefix: "/registry/resourcequotas/".to_owned(),
        fields: None,
        compressed: false,
    });
    for quota in quotas {
        let key = format!("ns/{}", quota.name());
        let draft = Draft::new(quota, Vec::new());
        storage.put(&key, Precondition::Absent, draft, None).await.unwrap();
    }
    let cluster = testing::stored([((String::new(), "resourcequotas".to_owned()), storage.clone())].into());
    Served {
        quotas: storage,
        plugin: ResourceQuota::new(cluster, config),
        _engine: engine,
        _dir: dir,
    }
}

impl Served {
    async fn ask(&self, request: &Attributes, object: &Value) -> std::result::Result<(), String> {
        testing::ask(&self.plugin, request, object).await.map(drop)
    }

    async fn quota(&self, name: &str) -> Value {
        let entry = self.quotas.get(&format!("ns/{name}"), MinRevision::Latest).await;
        entry.unwrap().unwrap().decode()
    }

    async fn used(&self, name: &str) -> Value {
        self.quota(name).await.at(&["status", "used"]).clone()
    }
}

fn pod(cpu: &str) -> Value {
    testing::pod(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}))
}

fn create(plural: &str) -> Attributes {
    testing::request(Operation::Create, "", plural, "p")
}

#[tokio::test]
async fn writes_are_charged_until_the_quota_is_full() {
    let hard = json!({"pods": "2", "requests.cpu": "1"});
    let used = json!({"pods": "0", "requests.cpu": "0"});
    let served = serve(&[quota("q", json!({}), hard, used)], QuotaConfig::default()).await;
    let create = create("pods");
    let dry = Attributes {
        dry_run: true,
        ..create.clone()
    };
    served.ask(&dry, &pod("600m")).await.unwrap();
    served.ask(&create, &pod("600m")).await.unwrap();
    assert_eq!(served.used("q").await, json!({"pods": "1", "requests.cpu": "600m"}));
    assert_eq!(
        served.ask(&create, &pod("500m")).await.unwrap_err(),
        "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: \
         requests.cpu=1"
    );
    assert_eq!(
        served
            .ask(&create, &testing::pod(json!({"containers": [{"name": "a"}]})))
            .await,
        Err("pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: a".to_owned())
    );
    served.ask(&create, &pod("400m")).await.unwrap();
    assert_eq!(served.used("q").await, json!({"pods": "2", "requests.cpu": "1"}));
}

#[tokio::test]
async fn the_server_manages_the_usage_fields() {
    let one = quota("q", json!({}), json!({"pods": "2"}), json!({"pods": "0"}));
    let served = serve(&[one], QuotaConfig::default()).await;
    served.ask(&create("pods"), &pod("1")).await.unwrap();
    let quota = served.quota("q").await;
    let managers = quota.at(&["metadata", "managedFields"]).items();
    assert_eq!(managers.len(), 1);
    assert_eq!(managers[0].str_at(&["manager"]), "kube-apiserver");
    assert_eq!(managers[0].str_at(&["subresource"]), "status");
    assert_eq!(
        managers[0].get("fieldsV1"),
        &json!({"f:status": {"f:used": {"f:pods": {}}}})
    );
}

#[tokio::test]
async fn a_quota_without_status_is_ignored_and_without_usage_rejects() {
    let none = json!({});
    let served = serve(
        &[
            quota("a", json!({"hard": {"pods": "0"}}), none.clone(), none.clone()),
            quota("b", json!({}), json!({"count/secrets": "1", "secrets": "1"}), none),
        ],
        QuotaConfig::default(),
    )
    .await;
    served.ask(&create("pods"), &pod("1")).await.unwrap();
    assert_eq!(
        served
            .ask(&create("secrets"), &json!({"metadata": {}}))
            .await
            .unwrap_err(),
        "secrets \"p\" is forbidden: status unknown for quota: b, resources: count/secrets,secrets"
    );
    for other in ["configmaps", "events", "pods/binding", "secrets/x"] {
        served.ask(&create(other), &json!({"metadata": {}})).await.unwrap();
    }
}

#[tokio::test]
async fn an_update_is_charged_for_the_increase() {
    let hard = json!({"services.nodeports": "3", "services": "9"});
    let used = json!({"services.nodeports": "1", "services": "1"});
    let served = serve(&[quota("q", json!({}), hard, used)], QuotaConfig::default()).await;
    let service = |kind: &str, ports: usize| {
        let ports = vec![json!({"port": 80}); ports];
        json!({"metadata": {"name": "s"}, "spec": {"type": kind, "ports": (ports)}})
    };
    let update = testing::update("", "services", service("NodePort", 1));
    served.ask(&update, &service("NodePort", 2)).await.unwrap();
    assert_eq!(
        served.used("q").await,
        json!({"services.nodeports": "2", "services": "1"})
    );
    served.ask(&update, &service("ClusterIP", 5)).await.unwrap();
    assert_eq!(
        served.ask(&update, &service("NodePort", 4)).await.unwrap_err(),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=3, used: services.nodeports=2, \
         limited: services.nodeports=3"
    );
    // Only a change of scope matters for a pod's update. It is charged in full to the quota that newly
    // applies.
    let scoped = quota(
        "t",
        json!({"scopes": ["Terminating"]}),
        json!({"pods": "1"}),
        json!({"pods": "0"}),
    );
    let served = serve(&[scoped], QuotaConfig::default()).await;
    let update = testing::update("", "pods", testing::pod(json!({})));
    served.ask(&update, &testing::pod(json!({"x": 1}))).await.unwrap();
    assert_eq!(served.used("t").await, json!({"pods": "0"}));
    let ending = testing::pod(json!({"activeDeadlineSeconds": 5}));
    served.ask(&update, &ending).await.unwrap();
    assert_eq!(served.used("t").await, json!({"pods": "1"}));
}

#[tokio::test]
async fn many_quotas_are_listed_off_the_reactor() {
    use crate::tasks::compute::{ComputePool, Config, movable};
    use futures_util::FutureExt as _;

    let here = || std::thread::current().id();
    let pool = ComputePool::start(Config::default(), crate::telemetry::Telemetry::new().compute.clone()).unwrap();
    // In another namespace: none has to be decoded.
    let object = |n: usize| json!({"metadata": {"name": (n.to_string()), "namespace": "x"}});
    for (quotas, moves) in [(10, false), (5000, true)] {
        let cluster = testing::cluster(&[("", "resourcequotas", (0..quotas).map(object).collect())]);
        let plugin = Arc::new(ResourceQuota::new(cluster, QuotaConfig::default()));
        for freshness in [ReadConsistency::Cached, ReadConsistency::Latest] {
            let plugin = plugin.clone();
            let work = async move {
                assert!(plugin.quotas("ns", freshness).await.unwrap().is_empty());
                here()
            };
            let moved = pool.within(pool.flow("caller"), async { movable(work.boxed()).await });
            assert_eq!(moved.await.unwrap() != here(), moves, "{quotas}");
        }
    }
}

#[tokio::test]
async fn limited_resources_require_a_quota() {
    let config = QuotaConfig::parse(&json!({"limitedResources": [
        {"resource": "pods", "matchContains": ["cpu"]},
        {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "x"]}]}]}));
    let served = serve(&[], config).await;
    assert_eq!(
        served.ask(&create("pods"), &pod("1")).await.unwrap_err(),
        "pods \"p\" is forbidden: insufficient quota to consume: cpu,requests.cpu"
    );
    let high = testing::pod(json!({"priorityClassName": "high"}));
    assert_eq!(
        served.ask(&create("pods"), &high).await.unwrap_err(),
        "insufficient quota to match these scopes: [{PriorityClass In [high x]}]"
    );
    served.ask(&create("pods"), &testing::pod(json!({}))).await.unwrap();
}

#[tokio::test]
async fn concurrent_writes_never_exceed_the_quota() {
    let quotas = ["a", "b"].map(|name| {
        quota(
            name,
            json!({}),
            json!({"count/secrets": "10"}),
            json!({"count/secrets": "0"}),
        )
    });
    let served = Arc::new(serve(&quotas, QuotaConfig::default()).await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..25 {
        let served = served.clone();
        tasks.spawn(async move { served.ask(&create("secrets"), &json!({"metadata": {}})).await });
    }
    let outcomes = tasks.join_all().await;
    assert!(
        outcomes
            .iter()
            .flat_map(|o| o.as_ref().err())
            .all(|e| e.contains("exceeded quota"))
    );
    let let_in = outcomes.iter().filter(|o| o.is_ok()).count();
    for name in ["a", "b"] {
        // A write that fits one quota but not the other has already been charged to the first.
        let used = served.used(name).await;
        let used: usize = used.str_at(&["count/secrets"]).parse().unwrap();
        assert!(let_in <= used && used <= 10, "{let_in} of {used}");
    }
}

proptest! {
    /// Compared with plain integers: pods requesting these millicores, under a quota of `hard` millicores.
    #[test]
    fn usage_is_the_sum_of_admitted_pods(hard in 0i64..5000, asked in prop::collection::vec(0i64..2000, 0..12)) {
        let hard_text = format!("{hard}m");
        let mut stored = quota("q", json!({}), json!({"requests.cpu": hard_text}), json!({"requests.cpu": "0"}));
        let mut sum = 0;
        for millis in asked {
            let object = pod(&format!("{millis}m"));
            let attributes = create("pods");
            let write = Write { attributes: &attributes, object: &object, old: None };
            let resource = GroupResource::new("", "pods");
            let outcome = evaluate(&[&stored], &write, &Evaluator::of(&resource), &[]);
            prop_assert_eq!(outcome.is_ok(), millis == 0 || sum + millis <= hard);
            if let Ok(charges) = outcome
                && let Some(used) = &charges[0]
            {
                sum += millis;
                stored.set(&["status", "used", "requests.cpu"], used["requests.cpu"].to_string());
            }
            let used = crate::apimachinery::quantity::Quantity::parse(stored.str_at(&["status", "used", "requests.cpu"]));
            prop_assert_eq!(used.map(|q| q.milli_value()), Ok(sum));
        }
    }
}
