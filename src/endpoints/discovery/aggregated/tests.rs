use super::*;
use http::header::ACCEPT;

const ASK: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(k, v)| (k.clone(), v.parse().unwrap())).collect()
}

fn with(gvs: &[(&str, &str, i64, i64)]) -> AggregatedDiscovery {
    let d = AggregatedDiscovery::new();
    for (g, v, group, version) in gvs {
        let p = Priorities {
            group: *group,
            version: *version,
        };
        d.set_group_version(
            Source::BUILT_IN,
            &GroupVersion::new(g, v),
            p,
            crate::json!({"version": v, "resources": [], "freshness": "Current"}),
        );
    }
    d
}

fn order(d: &AggregatedDiscovery) -> Vec<String> {
    let v = json::decode(&d.rendered().json).unwrap();
    let mut out = Vec::new();
    for item in v.get("items").items() {
        for version in item.get("versions").items() {
            out.push(format!(
                "{}/{}",
                item.str_at(&["metadata", "name"]),
                version.str_at(&["version"])
            ));
        }
    }
    out
}

#[test]
fn groups_and_versions_sort_by_priority() {
    let d = with(&[
        ("b", "v1", 10, 1),
        ("a", "v1", 10, 1),
        ("c", "v1beta1", 20, 5),
        ("c", "v1", 1, 9),
    ]);
    assert_eq!(order(&d), ["c/v1", "c/v1beta1", "a/v1", "b/v1"]);
}

#[test]
fn lowest_source_is_shown_until_removed() {
    let d = with(&[("a", "v1", 10, 1)]);
    let gv = GroupVersion::new("a", "v1");
    let stale = crate::json!({"version": "v1", "freshness": "Stale"});
    d.set_group_version(Source::AGGREGATED, &gv, Priorities::default(), stale);
    assert!(String::from_utf8_lossy(&d.rendered().json).contains("Stale"));
    d.remove_group_version(Source::AGGREGATED, &gv);
    assert!(!String::from_utf8_lossy(&d.rendered().json).contains("Stale"));
}

#[test]
fn if_none_match_compares_the_whole_etag() {
    let d = with(&[("a", "v1", 10, 1)]);
    let r = d.respond(&headers(&[(ACCEPT, ASK)])).unwrap();
    let etag = r.headers()[ETAG].to_str().unwrap().to_owned();
    assert_eq!(etag.len(), 130);
    assert_eq!(r.headers()[CONTENT_TYPE], ASK);
    let again = d.respond(&headers(&[(ACCEPT, ASK), (IF_NONE_MATCH, &etag)])).unwrap();
    assert_eq!(
        (again.status().as_u16(), again.headers().contains_key(CONTENT_TYPE)),
        (304, false)
    );
    let listed = format!("\"x\", {etag}");
    let other = d.respond(&headers(&[(ACCEPT, ASK), (IF_NONE_MATCH, &listed)])).unwrap();
    assert_eq!(other.status().as_u16(), 200);
}

#[test]
fn any_clause_with_the_current_version_is_served() {
    let d = with(&[]);
    let accept = format!("application/json,{ASK}");
    assert!(d.respond(&headers(&[(ACCEPT, accept.as_str())])).is_some());
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    assert!(d.respond(&headers(&[(ACCEPT, old)])).is_none());
}

#[test]
fn concurrent_requests_after_a_change_render_once() {
    let d = with(&[("a", "v1", 10, 1)]);
    let parts = d.lock();
    let (started, starts) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (d, started) = (&d, started.clone());
            scope.spawn(move || {
                started.send(()).unwrap();
                d.rendered()
            });
        }
        starts.iter().take(4).for_each(drop);
        drop(parts);
    });
    assert_eq!(d.times_rendered(), 1);
}
