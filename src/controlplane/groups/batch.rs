//! The resources of batch/v1.

use crate::controlplane::columns::workloads as columns;
use crate::controlplane::fields::count;
use crate::controlplane::resource_builder::GroupVersionBuilder;
use crate::controlplane::strategies::workloads;
use crate::registry::resource::Resource;

const V1: GroupVersionBuilder = GroupVersionBuilder {
    group: "batch",
    version: "v1",
};

/// The resources of the group.
pub(crate) fn rows() -> Vec<Resource> {
    vec![
        V1.kind("cronjobs", "CronJob")
            .namespaced()
            .short(&["cj"])
            .category("all")
            .strategy(workloads::CRON_JOB)
            .columns(columns::cron_jobs())
            .status()
            .build(),
        V1.kind("jobs", "Job")
            .namespaced()
            .category("all")
            .strategy(workloads::JOB)
            .columns(columns::jobs())
            .selectable(["status.successful"], |v| [count(v, &["status", "succeeded"])])
            .status()
            .build(),
    ]
}
