//! Columns of pod templates and of the workload kinds in core, apps and batch.

use super::cells::{age, labels, name, none_if_empty, since};
use super::text::{AGE, NAME};
use super::words::*;
use super::{Heading, table};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector as Selector;
use crate::apimachinery::table::human_duration;
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);
const C: Heading = ("Containers", "string", 1, CONTAINERS);
const I: Heading = ("Images", "string", 1, IMAGES);

const TEMPLATE: &[&str] = &["spec", "template"];
/// The fields that [`containers`] and [`images`] read.
const POD_TEMPLATE: &str = "spec.template.spec.containers.{name,image}";

fn of_containers(o: &Value, template: &[&str], key: &str) -> Value {
    let all: Vec<&str> = o
        .at(template)
        .at(&["spec", "containers"])
        .items()
        .iter()
        .map(|c| c.str_at(&[key]))
        .collect();
    all.join(",").into()
}

fn containers(o: &Value, template: &[&str]) -> Value {
    of_containers(o, template, "name")
}

fn images(o: &Value, template: &[&str]) -> Value {
    of_containers(o, template, "image")
}

/// The integer at `path`, 0 if absent.
fn count(o: &Value, path: &[&str]) -> i64 {
    o.at(path).as_i64().unwrap_or(0)
}

/// A label selector as text: `<none>` if absent, `empty` if it has no requirements, `bad` if it cannot be
/// parsed. Upstream's printers differ in the last two.
fn selector(v: &Value, empty: &str, bad: &str) -> Value {
    if v.is_null() {
        return "<none>".into();
    }
    match Selector::from_object(v) {
        Err(_) => bad.into(),
        // Upstream's formatters test the formatted selector, not its members.
        Ok(s) if s.to_string().is_empty() => empty.into(),
        Ok(s) => s.to_string().into(),
    }
}

pub(crate) fn pod_templates() -> Columns {
    let headings = [
        N,
        ("Containers", "string", 0, CONTAINERS),
        ("Images", "string", 0, IMAGES),
        ("Pod Labels", "string", 0, POD_LABELS),
    ];
    table(
        &headings,
        &["template.metadata.labels", "template.spec.containers.{name,image}"],
        |o| {
            vec![
                name(o),
                containers(o, &["template"]),
                images(o, &["template"]),
                labels(o.at(&["template", "metadata", "labels"])).into(),
            ]
        },
    )
}

pub(crate) fn replication_controllers() -> Columns {
    replicated([RC_DESIRED, RC_CURRENT, RC_READY, RC_SELECTOR], |o| {
        replicas(o, labels(o.at(&["spec", "selector"])).into())
    })
}

pub(crate) fn replica_sets() -> Columns {
    replicated([RS_DESIRED, RS_CURRENT, RS_READY, RS_SELECTOR], |o| {
        replicas(o, selector(o.at(&["spec", "selector"]), "<none>", "<error>"))
    })
}

/// Columns of ReplicaSets and ReplicationControllers; [`replicas`] makes the cells.
fn replicated([desired, current, ready, selector]: [&'static str; 4], cells: fn(&Value) -> Vec<Value>) -> Columns {
    let headings = [
        N,
        ("Desired", "integer", 0, desired),
        ("Current", "integer", 0, current),
        ("Ready", "integer", 0, ready),
        A,
        C,
        I,
        ("Selector", "string", 1, selector),
    ];
    let reads = [
        "spec.{replicas,selector}",
        POD_TEMPLATE,
        "status.{replicas,readyReplicas}",
    ];
    table(&headings, &reads, cells)
}

fn replicas(o: &Value, selector: Value) -> Vec<Value> {
    vec![
        name(o),
        count(o, &["spec", "replicas"]).into(),
        count(o, &["status", "replicas"]).into(),
        count(o, &["status", "readyReplicas"]).into(),
        age(o),
        containers(o, TEMPLATE),
        images(o, TEMPLATE),
        selector,
    ]
}

fn ready(o: &Value) -> Value {
    // Out of the replicas asked for, not of the pods that exist at the moment.
    format!(
        "{}/{}",
        count(o, &["status", "readyReplicas"]),
        count(o, &["spec", "replicas"])
    )
    .into()
}

pub(crate) fn deployments() -> Columns {
    let headings = [
        N,
        ("Ready", "string", 0, PODS_READY),
        ("Up-to-date", "string", 0, DEPLOYMENT_UPDATED),
        ("Available", "string", 0, DEPLOYMENT_AVAILABLE),
        A,
        C,
        I,
        ("Selector", "string", 1, DEPLOYMENT_SELECTOR),
    ];
    table(
        &headings,
        &[
            "spec.{replicas,selector}",
            POD_TEMPLATE,
            "status.{readyReplicas,updatedReplicas,availableReplicas}",
        ],
        |o| {
            vec![
                name(o),
                ready(o),
                count(o, &["status", "updatedReplicas"]).into(),
                count(o, &["status", "availableReplicas"]).into(),
                age(o),
                containers(o, TEMPLATE),
                images(o, TEMPLATE),
                selector(o.at(&["spec", "selector"]), "", "<invalid>"),
            ]
        },
    )
}

pub(crate) fn stateful_sets() -> Columns {
    table(
        &[N, ("Ready", "string", 0, PODS_READY), A, C, I],
        &["spec.replicas", POD_TEMPLATE, "status.readyReplicas"],
        |o| vec![name(o), ready(o), age(o), containers(o, TEMPLATE), images(o, TEMPLATE)],
    )
}

pub(crate) fn daemon_sets() -> Columns {
    let headings = [
        N,
        ("Desired", "integer", 0, DAEMON_DESIRED),
        ("Current", "integer", 0, DAEMON_CURRENT),
        ("Ready", "integer", 0, DAEMON_READY),
        ("Up-to-date", "integer", 0, DAEMON_UP_TO_DATE),
        ("Available", "integer", 0, DAEMON_AVAILABLE),
        ("Node Selector", "string", 0, DAEMON_NODE_SELECTOR),
        A,
        C,
        I,
        ("Selector", "string", 1, DAEMON_SELECTOR),
    ];
    table(
        &headings,
        &[
            "spec.{selector,template.spec.nodeSelector}",
            POD_TEMPLATE,
            "status.{desiredNumberScheduled,currentNumberScheduled,numberReady}",
            "status.{updatedNumberScheduled,numberAvailable}",
        ],
        |o| {
            let status = |key: &str| Value::from(count(o, &["status", key]));
            vec![
                name(o),
                status("desiredNumberScheduled"),
                status("currentNumberScheduled"),
                status("numberReady"),
                status("updatedNumberScheduled"),
                status("numberAvailable"),
                labels(o.at(&["spec", "template", "spec", "nodeSelector"])).into(),
                age(o),
                containers(o, TEMPLATE),
                images(o, TEMPLATE),
                selector(o.at(&["spec", "selector"]), "<none>", "<error>"),
            ]
        },
    )
}

pub(crate) fn controller_revisions() -> Columns {
    let headings = [
        N,
        ("Controller", "string", 0, REVISION_CONTROLLER),
        ("Revision", "string", 0, REVISION_REVISION),
        A,
    ];
    table(&headings, &["metadata.ownerReferences", "revision"], |o| {
        vec![name(o), controller(o).into(), count(o, &["revision"]).into(), age(o)]
    })
}

/// The controlling owner, such as `statefulset.apps/web`.
fn controller(o: &Value) -> String {
    let owners = o.at(&["metadata", "ownerReferences"]).items();
    let Some(owner) = owners.iter().find(|r| r.get("controller").as_bool() == Some(true)) else {
        return "<none>".to_owned();
    };
    // The group, not the version: it stays the same when the owner is served under a newer version.
    let gvk = owner.gvk();
    let kind = gvk.kind.to_lowercase();
    match gvk.group.as_str() {
        "" => format!("{kind}/{}", owner.str_at(&["name"])),
        group => format!("{kind}.{group}/{}", owner.str_at(&["name"])),
    }
}

pub(crate) fn jobs() -> Columns {
    let headings = [
        N,
        ("Status", "string", 0, JOB_STATUS),
        ("Completions", "string", 0, JOB_COMPLETIONS),
        ("Duration", "string", 0, JOB_DURATION),
        A,
        C,
        I,
        ("Selector", "string", 1, JOB_SELECTOR),
    ];
    table(
        &headings,
        &[
            "metadata.deletionTimestamp",
            "spec.{completions,parallelism,selector}",
            POD_TEMPLATE,
            "status.{succeeded,startTime,completionTime}",
            "status.conditions.{type,status}",
        ],
        |o| {
            vec![
                name(o),
                job_status(o).into(),
                job_completions(o).into(),
                job_duration(o).into(),
                age(o),
                containers(o, TEMPLATE),
                images(o, TEMPLATE),
                selector(o.at(&["spec", "selector"]), "<none>", "<error>"),
            ]
        },
    )
}

fn job_status(o: &Value) -> &'static str {
    let holds = |kind: &str| super::cells::condition(o, kind).is_some_and(|c| c.str_at(&["status"]) == "True");
    match () {
        // The order is upstream's: finished states first, then deletion, then intermediate conditions.
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if o.is_being_deleted() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_completions(o: &Value) -> String {
    let done = count(o, &["status", "succeeded"]);
    match o.at(&["spec", "completions"]).as_i64() {
        Some(of) => format!("{done}/{of}"),
        None => match count(o, &["spec", "parallelism"]) {
            // Without `completions` the Job is a work queue: one success suffices, with `n` workers at it.
            n if n > 1 => format!("{done}/1 of {n}"),
            _ => format!("{done}/1"),
        },
    }
}

fn job_duration(o: &Value) -> String {
    let of = |key: &str| o.at(&["status", key]).as_str().and_then(|s| time::parse(s).ok());
    match (of("startTime"), of("completionTime")) {
        // Not started yet, or suspended: suspending a Job resets its start time.
        (None, _) => String::new(),
        (Some(_), None) => since(o.at(&["status", "startTime"])),
        (Some(from), Some(to)) => human_duration((to - from).whole_seconds()),
    }
}

pub(crate) fn cron_jobs() -> Columns {
    const JOB_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];
    let headings = [
        N,
        ("Schedule", "string", 0, CRONJOB_SCHEDULE),
        ("Timezone", "string", 0, CRONJOB_TIMEZONE),
        ("Suspend", "boolean", 0, CRONJOB_SUSPEND),
        ("Active", "integer", 0, CRONJOB_ACTIVE),
        ("Last Schedule", "string", 0, CRONJOB_LAST_SCHEDULE),
        A,
        C,
        I,
        ("Selector", "string", 1, JOB_SELECTOR),
    ];
    table(
        &headings,
        &[
            "spec.{suspend,schedule,timeZone,jobTemplate.spec.selector}",
            "spec.jobTemplate.spec.template.spec.containers.{name,image}",
            "status.{active.#,lastScheduleTime}",
        ],
        |o| {
            // Go's spelling of a pointer's value, in a column whose declared type is boolean.
            let suspend = match o.at(&["spec", "suspend"]).as_bool() {
                None => "<unset>",
                Some(true) => "True",
                Some(false) => "False",
            };
            let last = match o.at(&["status", "lastScheduleTime"]) {
                Value::Null => "<none>".to_owned(),
                t => since(t),
            };
            vec![
                name(o),
                o.str_at(&["spec", "schedule"]).into(),
                none_if_empty(o.str_at(&["spec", "timeZone"]).to_owned()).into(),
                suspend.into(),
                (o.at(&["status", "active"]).items().len() as i64).into(),
                last.into(),
                age(o),
                containers(o, JOB_TEMPLATE),
                images(o, JOB_TEMPLATE),
                selector(o.at(&["spec", "jobTemplate", "spec", "selector"]), "<none>", "<error>"),
            ]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn job_status_follows_conditions() {
        let with = |kind: &str| json!({"status": {"conditions": [{"type": (kind), "status": "True"}]}});
        assert_eq!(job_status(&json!({})), "Running");
        assert_eq!(job_status(&with("Complete")), "Complete");
        assert_eq!(job_status(&with("Suspended")), "Suspended");
        assert_eq!(job_completions(&json!({"spec": {"parallelism": 3}})), "0/1 of 3");
        assert_eq!(
            job_completions(&json!({"spec": {"completions": 3}, "status": {"succeeded": 1}})),
            "1/3"
        );
        let ended = json!({"status": {"startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:05:30Z"}});
        assert_eq!(job_duration(&ended), "5m30s");
    }

    #[test]
    fn controller_includes_the_api_group() {
        let o = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]}});
        assert_eq!(controller(&o), "statefulset.apps/web");
        assert_eq!(controller(&json!({})), "<none>");
    }
}
