use super::*;

#[test]
fn equal_labels_share_a_series() {
    let r = Registry::new();
    let m = RequestMetrics::new(&r);
    m.serve("", "", [("pods", vec![]), ("nodes", vec![])].into_iter());
    let l = |resource| Labels {
        verb: "GET",
        resource,
        ..Default::default()
    };
    m.series(&l("pods"), 200).total.inc();
    m.series(&l("pods"), 200).total.inc();
    m.series(&l("pods"), 404).total.inc();
    m.series(&l("nodes"), 200).total.inc();
    assert_eq!(m.series(&l("pods"), 200).total.get(), 2);
    assert_eq!(m.known.load().values().map(Vec::len).sum::<usize>(), 3);
}

#[test]
fn series_of_a_removed_group_version_are_purged() {
    let r = Registry::new();
    let m = RequestMetrics::new(&r);
    m.serve("", "v1", [("pods", vec![])].into_iter());
    for n in 0..3 {
        let group = format!("g{n}.example");
        m.set_registered(&group, "v1", true);
        for group in [group.as_str(), ""] {
            let labels = Labels {
                verb: "GET",
                group,
                version: "v1",
                resource: "pods",
                ..Default::default()
            };
            m.series(&labels, 200).total.inc();
            m.longrunning(&labels).inc();
            m.terminated(&labels, 429);
            m.aborted(&labels);
        }
    }
    m.set_registered("g0.example", "v1", false);
    m.set_registered("g2.example", "v1", false);
    m.purge();
    for family in r.gather() {
        let groups: Vec<&str> = family
            .get_metric()
            .iter()
            .flat_map(|m| m.get_label())
            .filter(|l| l.name() == "group")
            .map(|l| l.value())
            .collect();
        if !groups.is_empty() {
            assert_eq!(groups, ["", "g1.example"], "{}", family.name());
        }
    }
    assert_eq!(m.known.load().values().map(Vec::len).sum::<usize>(), 2);
}

#[test]
fn series_limit_is_per_resource() {
    let r = Registry::new();
    let m = RequestMetrics::new(&r);
    m.serve("", "v1", [("pods", vec![]), ("nodes", vec![])].into_iter());
    fn labels_for(resource: &str) -> Labels<'_> {
        Labels {
            verb: "GET",
            version: "v1",
            resource,
            ..Default::default()
        }
    }
    let series = || m.known.load().values().map(Vec::len).sum::<usize>();
    for code in 1..=10_000 {
        m.series(&labels_for("pods"), code).total.inc();
    }
    assert_eq!(series(), MAX_SERIES + 1);
    assert_eq!(
        m.series(&labels_for("pods"), 9999).total.get(),
        10_000 - MAX_SERIES as u64
    );
    m.series(&labels_for("nodes"), 200).total.inc();
    assert_eq!(m.series(&labels_for("nodes"), 200).total.get(), 1);
    for n in 0..10_000 {
        let made_up = n.to_string();
        m.series(&labels_for(&made_up), 404).total.inc();
        m.longrunning(&labels_for(&made_up)).inc();
        m.terminated(&labels_for(&made_up), 429);
        m.aborted(&labels_for(&made_up));
    }
    assert_eq!(series(), MAX_SERIES + 3);
    assert_eq!(
        r.gather().iter().map(|f| f.get_metric().len()).max(),
        Some(MAX_SERIES + 3)
    );
}
