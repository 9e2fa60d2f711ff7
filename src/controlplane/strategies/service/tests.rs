use super::*;
use crate::json;
use crate::storage::embedded::{Engine, Options, ResourceConfig};

/// The strategy, over a store of its own for the record of node ports.
struct Fixture {
    service: Service,
    _engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl std::ops::Deref for Fixture {
    type Target = Service;
    fn deref(&self) -> &Service {
        &self.service
    }
}

fn strategy() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let record = engine.resource(ResourceConfig {
        prefix: "/registry/ranges/".to_owned(),
        fields: None,
        compressed: false,
    });
    let record = Arc::new(NodePortRecord::new(record, (30000, 32767)));
    let allocators = ServiceAllocators {
        ranges: vec![IpAllocator::parse("10.0.0.0/24").unwrap()],
        service_cidrs: Default::default(),
        ports: PortAllocator::new(30000, 32767),
    };
    Fixture {
        service: Service::new(Arc::new(allocators), Arc::new(Nowhere), record, Arc::new(Nowhere)),
        _engine: engine,
        _dir: dir,
    }
}

/// Accepts every claim and records nothing.
struct Nowhere;

#[async_trait]
impl EndpointsCleanup for Nowhere {
    async fn remove(&self, _: &str, _: &str) {}
}

#[async_trait]
impl AddressRegistry for Nowhere {
    async fn claim(&self, _: std::net::IpAddr, _: &str, _: &str) -> Result<bool> {
        Ok(true)
    }
    async fn release(&self, _: std::net::IpAddr, _: &str, _: &str) {}
}

fn new(name: &str, spec: Value) -> Value {
    let mut v = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "ns"}});
    v.set(&["spec"], spec);
    v
}

fn cx() -> Context {
    Context::system("ns")
}

async fn create(s: &Service, mut v: Value) -> Result<Value> {
    s.default(&mut v);
    s.prepare_create(&mut v);
    s.begin(&cx(), &mut v, None).await?;
    let errors = s.validate_create(&v);
    if errors.is_empty() {
        return Ok(v);
    }
    s.end(&cx(), &v, Outcome::Abandoned { old: None }).await;
    Err(crate::apimachinery::Status::invalid("", "Service", v.name(), &errors))
}

async fn update(s: &Service, mut v: Value, old: &Value) -> Result<Value> {
    s.default(&mut v);
    s.prepare_update(&mut v, old);
    s.begin(&cx(), &mut v, Some(old)).await?;
    let errors = s.validate_update(&v, old);
    if errors.is_empty() {
        s.end(&cx(), &v, Outcome::Updated { old }).await;
        return Ok(v);
    }
    s.end(&cx(), &v, Outcome::Abandoned { old: Some(old) }).await;
    Err(crate::apimachinery::Status::invalid("", "Service", v.name(), &errors))
}

#[tokio::test]
async fn new_service_gets_an_address_and_families() {
    let s = strategy();
    let v = create(&s, new("a", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let ip = v.str_at(&["spec", "clusterIP"]);
    assert!(ip.starts_with("10.0.0."));
    assert_eq!(v.at(&["spec", "clusterIPs"]), &json!([ip]));
    assert_eq!(v.at(&["spec", "ipFamilies"]), &json!(["IPv4"]));
    assert_eq!(v.str_at(&["spec", "ipFamilyPolicy"]), "SingleStack");
    assert_eq!(v.get("status"), &json!({"loadBalancer": {}}));
}

#[tokio::test]
async fn allocation_errors_match_the_recordings() {
    let s = strategy();
    for (spec, want) in [
        (
            json!({"ports": [{"port": 80}], "clusterIP": "10.9.9.9"}),
            r#"spec.clusterIPs: Invalid value: ["10.9.9.9"]: failed to allocate IP 10.9.9.9: the provided network does not match the current range"#,
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "fd00::1"}),
            r#"spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster"#,
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 80}], "type": "NodePort"}),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "name": "t", "nodePort": 31997}, {"port": 81, "name": "u", "nodePort": 31997}]}),
            "spec.ports[1].nodePort: Invalid value: 31997: provided port is already allocated",
        ),
    ] {
        let e = create(&s, new("a", spec)).await.unwrap_err();
        assert_eq!(e.message, format!("Service \"a\" is invalid: {want}"));
    }
    assert_eq!(
        (s.allocators.ranges[0].allocated(), s.allocators.ports.allocated()),
        (0, 0)
    );
}

#[tokio::test]
async fn protocols_of_one_port_share_a_node_port() {
    let s = strategy();
    let ports = json!([{"port": 80, "name": "t"}, {"port": 80, "name": "u", "protocol": "UDP"}]);
    let v = create(&s, new("b", json!({"type": "NodePort", "ports": ports})))
        .await
        .unwrap();
    let ports = v.at(&["spec", "ports"]).items();
    assert_eq!(ports[0].get("nodePort"), ports[1].get("nodePort"));
    assert_eq!(s.allocators.ports.allocated(), 1);
}

#[tokio::test]
async fn type_changes_allocate_and_release() {
    let s = strategy();
    let a = create(&s, new("s", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let ip = a.str_at(&["spec", "clusterIP"]).to_owned();
    let with = |from: &Value, edits: &[(&str, Value)]| {
        let mut v = from.clone();
        for (k, x) in edits {
            if x.is_null() {
                v.unset(&["spec", k]);
            } else {
                v.set(&["spec", k], x.clone());
            }
        }
        v
    };
    let b = update(&s, with(&a, &[("type", "NodePort".into())]), &a).await.unwrap();
    assert_eq!(b.str_at(&["spec", "clusterIP"]), ip);
    assert_eq!(s.allocators.ports.allocated(), 1);
    let c = update(&s, with(&b, &[("type", "LoadBalancer".into())]), &b)
        .await
        .unwrap();
    assert_eq!(c.at(&["spec", "ports"]), b.at(&["spec", "ports"]));
    let d = update(&s, with(&c, &[("type", "ClusterIP".into())]), &c).await.unwrap();
    assert_eq!(s.allocators.ports.allocated(), 0);
    assert!(d.at(&["spec", "allocateLoadBalancerNodePorts"]).is_null());
    assert!(d.at(&["spec", "externalTrafficPolicy"]).is_null());
    let e = with(
        &d,
        &[
            ("type", "ExternalName".into()),
            ("externalName", "x.example.com".into()),
        ],
    );
    let e = update(&s, e, &d).await.unwrap();
    assert_eq!(
        e.get("spec"),
        &json!({"externalName": "x.example.com", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "sessionAffinity": "None", "type": "ExternalName"})
    );
    assert_eq!(s.allocators.ranges[0].allocated(), 0);
    let f = with(&e, &[("type", "ClusterIP".into()), ("externalName", Value::Null)]);
    let f = update(&s, f, &e).await.unwrap();
    assert!(f.str_at(&["spec", "clusterIP"]).starts_with("10.0.0."));
    let none = update(&s, with(&f, &[("clusterIP", "None".into())]), &f)
        .await
        .unwrap_err();
    assert_eq!(
        none.message,
        r#"Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set"#
    );
    let moved = new("s", json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.9"}));
    assert_eq!(
        update(&s, moved, &f).await.unwrap_err().message,
        r#"Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set"#
    );
    let g = update(&s, with(&f, &[("ipFamilyPolicy", "PreferDualStack".into())]), &f)
        .await
        .unwrap();
    assert_eq!(g.at(&["spec", "ipFamilies"]), &json!(["IPv4"]));
    let bare = new("s", json!({"ports": [{"port": 81}]}));
    let h = update(&s, bare, &g).await.unwrap();
    assert_eq!(h.str_at(&["spec", "ipFamilyPolicy"]), "PreferDualStack");
    assert_eq!(h.str_at(&["spec", "clusterIP"]), g.str_at(&["spec", "clusterIP"]));
    s.end(&cx(), &h, Outcome::Deleted).await;
    assert_eq!(s.allocators.ranges[0].allocated(), 0);
}

#[tokio::test]
async fn rejected_update_releases_nothing_of_other_services() {
    let s = strategy();
    let a = create(&s, new("a", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let b = create(&s, new("b", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let mut stolen = a.clone();
    stolen.set(&["spec", "clusterIP"], b.str_at(&["spec", "clusterIP"]));
    assert!(update(&s, stolen, &a).await.is_err());
    assert_eq!(s.allocators.ranges[0].allocated(), 2);
}

#[tokio::test]
async fn health_check_ports_follow_the_traffic_policy() {
    let s = strategy();
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31994, "ports": [{"port": 80, "nodePort": 31993}]});
    let a = create(&s, new("lb", spec)).await.unwrap();
    let mut moved = a.clone();
    moved.set(&["spec", "healthCheckNodePort"], 31992i64);
    let e = update(&s, moved, &a).await.unwrap_err();
    assert_eq!(
        e.message,
        "Service \"lb\" is invalid: spec.healthCheckNodePort: Forbidden: field is immutable"
    );
    let mut cluster = a.clone();
    cluster.set(&["spec", "externalTrafficPolicy"], "Cluster");
    let b = update(&s, cluster, &a).await.unwrap();
    assert!(b.at(&["spec", "healthCheckNodePort"]).is_null());
    assert_eq!(s.allocators.ports.allocated(), 1);
}

#[tokio::test]
async fn health_check_of_a_full_range_is_refused_with_upstreams_message() {
    let s = strategy();
    let mut claim = s.node_ports.read().await.unwrap();
    claim.ports.extend(30000..=32767);
    assert!(s.node_ports.write(claim).await.unwrap());
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
        "ports": [{"port": 80}]});
    assert_eq!(
        create(&s, new("lb", spec)).await.unwrap_err().message,
        "Internal error occurred: failed to allocate a HealthCheck NodePort 0: range is full"
    );
}

#[tokio::test]
async fn dry_run_allocates_nothing() {
    let s = strategy();
    let mut v = new(
        "e",
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 31995}]}),
    );
    s.default(&mut v);
    s.prepare_create(&mut v);
    let dry = Context { dry_run: true, ..cx() };
    s.begin(&dry, &mut v, None).await.unwrap();
    assert_eq!(v.str_at(&["spec", "clusterIP"]), "10.0.0.0");
    s.end(&dry, &v, Outcome::Abandoned { old: None }).await;
    assert_eq!(
        (s.allocators.ranges[0].allocated(), s.allocators.ports.allocated()),
        (0, 0)
    );
}

#[tokio::test]
async fn headless_service_without_selector_has_both_families() {
    let s = strategy();
    let v = create(&s, new("h", json!({"clusterIP": "None"}))).await.unwrap();
    assert_eq!(v.at(&["spec", "ipFamilies"]), &json!(["IPv4", "IPv6"]));
    assert_eq!(v.str_at(&["spec", "ipFamilyPolicy"]), "RequireDualStack");
    let v = create(&s, new("g", json!({"clusterIP": "None", "selector": {"a": "b"}})))
        .await
        .unwrap();
    assert_eq!(v.at(&["spec", "ipFamilies"]), &json!(["IPv4"]));
    let prefers = json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"});
    let v = create(&s, new("p", prefers)).await.unwrap();
    assert_eq!(v.at(&["spec", "ipFamilies"]), &json!(["IPv4", "IPv6"]));
}

#[tokio::test]
async fn impossible_families_are_refused_with_upstreams_message() {
    let s = strategy();
    for (spec, why) in [
        (
            json!({"ports": [{"port": 80}], "ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
             multiple IP families are specified",
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "fd00::1", "ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"ports": [{"port": 80}], "clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
    ] {
        let refused = create(&s, new("a", spec)).await.unwrap_err();
        assert_eq!(refused.message, format!("Service \"a\" is invalid: {why}"));
    }
}

#[tokio::test]
async fn a_dry_run_picks_unused_ports_after_the_greatest() {
    let s = strategy();
    for (asked, health) in [(31990, 31991i64), (i64::from(i32::MIN), 1)] {
        let mut v = new("e", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
        v.set(&["spec", "ports"], vec![json!({"port": 80, "nodePort": asked})]);
        s.default(&mut v);
        s.prepare_create(&mut v);
        let dry = Context { dry_run: true, ..cx() };
        s.begin(&dry, &mut v, None).await.unwrap();
        assert_eq!(v.at(&["spec", "healthCheckNodePort"]), &health.into(), "{asked}");
    }
}

#[tokio::test]
async fn update_rejects_duplicate_node_ports() {
    let s = strategy();
    let spec = json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 31989}]});
    let a = create(&s, new("np", spec)).await.unwrap();
    let mut doubled = a.clone();
    let port = a.at(&["spec", "ports"]).items()[0].clone();
    doubled.set(&["spec", "ports"], vec![port.clone(), port]);
    let e = update(&s, doubled, &a).await.unwrap_err();
    assert_eq!((e.code, e.message.as_str()), (500, "duplicate nodePort: {TCP 31989}"));
}

#[tokio::test]
async fn the_node_port_of_an_external_name_is_not_refused_later() {
    let s = strategy();
    // Outside of the range, and inside.
    for (name, port, held) in [("low", 80i64, 0), ("high", 31988, 1)] {
        let mut spec = json!({"type": "ExternalName", "externalName": "a.example.com"});
        spec.set(&["ports"], vec![json!({"port": 80, "nodePort": port})]);
        let external = create(&s, new(name, spec)).await.unwrap();
        assert_eq!(s.allocators.ports.allocated(), 0);
        let mut exposed = external.clone();
        exposed.set(&["spec", "type"], "NodePort");
        let exposed = update(&s, exposed, &external).await.unwrap();
        assert_eq!(exposed.at(&["spec", "ports"]).items()[0].get("nodePort"), &port.into());
        assert_eq!(s.allocators.ports.allocated(), held, "{name}");
    }
}

#[tokio::test]
async fn omitted_cluster_ip_is_kept() {
    let s = strategy();
    let a = create(&s, new("a", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let mut changed = a.clone();
    changed.unset(&["spec", "clusterIP"]);
    let b = update(&s, changed, &a).await.unwrap();
    assert_eq!(b.at(&["spec", "clusterIP"]), a.at(&["spec", "clusterIP"]));
    let mut strange = a.clone();
    strange.set(&["spec", "type"], "X");
    let e = update(&s, strange, &a).await.unwrap_err();
    assert_eq!(
        e.message,
        "Service \"a\" is invalid: spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""
    );
}
