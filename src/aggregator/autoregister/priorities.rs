//! Discovery priorities of the built-in groups. The numbers are upstream's. Entry point: [`priorities`].

/// A group, its priority, and its versions with their priorities.
type Row = (&'static str, i64, &'static [(&'static str, i64)]);

// Upstream's rows, with versions that are no longer served: a version without a row would get no APIService.
const GROUPS: &[Row] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15), ("v1beta1", 5)]),
    (
        "authentication.k8s.io",
        17700,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    (
        "autoscaling",
        17500,
        &[("v2", 30), ("v1", 15), ("v2beta1", 9), ("v2beta2", 1)],
    ),
    ("batch", 17400, &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)]),
    (
        "certificates.k8s.io",
        17300,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    (
        "admissionregistration.k8s.io",
        16700,
        &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    ),
    ("scheduling.k8s.io", 16600, &[("v1", 15), ("v1alpha2", 2)]),
    (
        "coordination.k8s.io",
        16500,
        &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)],
    ),
    ("node.k8s.io", 16300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("discovery.k8s.io", 16200, &[("v1", 15), ("v1beta1", 12)]),
    (
        "resource.k8s.io",
        16200,
        &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        16100,
        &[
            ("v1", 21),
            ("v1beta3", 18),
            ("v1beta2", 15),
            ("v1beta1", 12),
            ("v1alpha1", 9),
        ],
    ),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15800, &[("v1beta1", 9)]),
];

/// All groups in the table.
pub(crate) fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(group, ..)| *group)
}

/// Group and version priority of a built-in group version; `None` if it gets no APIService.
pub(crate) fn priorities(group: &str, version: &str) -> Option<(i64, i64)> {
    let (_, group_priority, versions) = GROUPS.iter().find(|(g, _, _)| *g == group)?;
    let (_, version_priority) = versions.iter().find(|(v, _)| *v == version)?;
    Some((*group_priority, *version_priority))
}
