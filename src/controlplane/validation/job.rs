//! Validation of Jobs (upstream's `pkg/apis/batch/validation`): `policies` has the failure and success
//! policies, `status` the status subresource. CronJobs share [`spec`].

mod policies;
mod status;

use super::common::not_negative;
use super::workloads::mismatch;
use super::{go_form, pod};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, quote, show};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::validation::{dns1123_label, domain_prefixed_path};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, label_selector, optional_choice, required_choice, same};
pub(crate) use status::status;

/// Label with the Job's uid, by which a Job selects its pods.
pub(crate) const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Labels the server adds to the pod template, unless `manualSelector` is set. The unprefixed ones are
/// legacy.
pub(crate) fn generated_labels<'a>(name: &'a str, uid: &'a str) -> [(&'static str, &'a str); 4] {
    [
        (CONTROLLER_UID, uid),
        ("controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
        ("job-name", name),
    ]
}

pub(crate) fn create(v: &Value) -> ErrorList {
    let mut out = ErrorList::new();
    generated(&mut out, v);
    let path = FieldPath::new("spec");
    job(&mut out, v.get("spec"), &path);
    pod_names(&mut out, v);
    out
}

/// Checks a Job's spec together with its selector, which CronJob templates lack.
fn job(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    self::spec(out, spec, path);
    let (selector, at) = (spec.get("selector"), path.child("selector"));
    if selector.is_null() {
        out.push(FieldError::required(&at, ""));
    } else {
        label_selector(out, selector, &at);
    }
    if let Ok(s) = LabelSelector::from_object(selector) {
        let template = spec.get("template");
        if selector.is_null() || !s.matches_map(template.at(&["metadata", "labels"])) {
            mismatch(out, template, &path.child("template"));
        }
    }
}

/// Checks that the generated labels and selector are unchanged.
fn generated(out: &mut ErrorList, v: &Value) {
    // A missing selector is reported by `job`.
    if v.at(&["spec", "manualSelector"]).as_bool() == Some(true) || v.at(&["spec", "selector"]).is_null() {
        return;
    }
    let path = FieldPath::new("spec");
    let labels = v.at(&["spec", "template", "metadata", "labels"]);
    let at = path.child("template").child("metadata").child("labels");
    for (key, want) in generated_labels(v.name(), v.uid()) {
        let detail = format!("must be '{want}'");
        match labels.get(key).as_str() {
            None => out.push(FieldError::required(&at.key(key), detail)),
            Some(has) if has != want => out.push(FieldError::invalid_raw(&at.key(key), show(labels), detail)),
            Some(_) => {}
        }
    }
    let selector = v.at(&["spec", "selector"]);
    if let Ok(s) = LabelSelector::from_object(selector) {
        let mut own = Value::object();
        for (key, value) in generated_labels(v.name(), v.uid()) {
            own.set(&[key], value);
        }
        if !selector.is_null() && !s.matches_map(&own) {
            let shown = go_form::compact(selector, go_form::SELECTOR);
            let why = "`selector` not auto-generated";
            out.push(FieldError::invalid_raw(&path.child("selector"), shown, why));
        }
    }
}

/// Checks that pod names of an indexed Job are DNS labels. The last index gives the longest name.
fn pod_names(out: &mut ErrorList, v: &Value) {
    let completions = v.at(&["spec", "completions"]).as_i64().unwrap_or(0);
    if v.str_at(&["spec", "completionMode"]) != "Indexed" || completions <= 0 {
        return;
    }
    let last = format!("{}-{}", v.name(), completions - 1);
    if !dns1123_label(&last).is_empty() {
        out.push(FieldError::invalid(
            &FieldPath::new("metadata").child("name"),
            v.name(),
            format!("will not able to create pod with invalid DNS label: {last}"),
        ));
    }
}

/// Limit of the parallelism of indexed Jobs, and of completions tracked without restrictions.
const MANY: i64 = 100_000;

/// Checks what Jobs and the templates of CronJobs have in common.
pub(super) fn spec(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(out, spec, key, path);
    }
    let number = |key: &str| spec.get(key).as_i64();
    if number("maxFailedIndexes").is_some() && number("backoffLimitPerIndex").is_none() {
        out.push(FieldError::required(
            &path.child("backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        ));
    }
    if let Some(who) = spec.get("managedBy").as_str() {
        domain_prefixed_path(who, &path.child("managedBy"), out);
        if who.len() > 63 {
            out.push(FieldError::too_long(&path.child("managedBy"), 63));
        }
    }
    let mode = spec.str_at(&["completionMode"]);
    optional_choice(out, spec, "completionMode", path, &["NonIndexed", "Indexed"]);
    if mode == "Indexed" {
        indexed(out, spec, path);
    } else if mode == "NonIndexed" || spec.get("completionMode").is_null() {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(n) = number(key) {
                out.push(FieldError::invalid(
                    &path.child(key),
                    n,
                    "requires indexed completion mode",
                ));
            }
        }
    }
    policies::pod_failure(out, spec, path);
    policies::success(out, spec, path);
    policies::replacement(out, spec, path);
    let (template, at) = (spec.get("template"), path.child("template"));
    pod::template(out, template, &at);
    restart_policy(out, spec, &at.child("spec"));
}

fn restart_policy(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let at = path.child("restartPolicy");
    match spec.str_at(&["template", "spec", "restartPolicy"]) {
        "" | "Always" => out.push(FieldError::required(&at, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if !spec.get("podFailurePolicy").is_null() => out.push(FieldError::invalid(
            &at,
            "OnFailure",
            "only \"Never\" is supported when podFailurePolicy is specified",
        )),
        "OnFailure" | "Never" => {}
        other => out.push(FieldError::not_supported(&at, other, &["OnFailure", "Never"])),
    }
}

fn indexed(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let number = |key: &str| spec.get(key).as_i64();
    if number("completions").is_none() {
        let why = "when completion mode is Indexed";
        out.push(FieldError::required(&path.child("completions"), why));
    }
    let mut too_big = |key: &str, n: i64, why: String| out.push(FieldError::invalid(&path.child(key), n, why));
    let (completions, parallelism, failed) = (number("completions"), number("parallelism"), number("maxFailedIndexes"));
    if let Some(n) = parallelism.filter(|n| *n > MANY) {
        let why = format!("must be less than or equal to {MANY} when completion mode is Indexed");
        too_big("parallelism", n, why);
    }
    if let Some(n) = failed {
        if n > completions.unwrap_or(i64::MAX) {
            too_big(
                "maxFailedIndexes",
                n,
                "must be less than or equal to completions".to_owned(),
            );
        }
        if n > MANY {
            too_big("maxFailedIndexes", n, format!("must be less than or equal to {MANY}"));
        }
    }
    let many = completions.is_some_and(|n| n > MANY) && number("backoffLimitPerIndex").is_some();
    let why =
        "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
    if many {
        if failed.is_none() {
            let why = "must be specified when completions is above 100000";
            out.push(FieldError::required(&path.child("maxFailedIndexes"), why));
        }
        for (key, n) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if let Some(n) = n.filter(|n| *n > 10_000) {
                out.push(FieldError::invalid(&path.child(key), n, why));
            }
        }
    }
}

pub(crate) fn update(new: &Value, old: &Value) -> ErrorList {
    let mut out = create(new);
    let (path, now, was) = (FieldPath::new("spec"), new.get("spec"), old.get("spec"));
    // As upstream, the spec is checked twice on update, so causes repeat.
    job(&mut out, now, &path);
    completions(&mut out, now, was, &path.child("completions"));
    let immutable = |out: &mut ErrorList, key: &str| {
        let v = now.get(key);
        if same(v, was.get(key)) {
            return;
        }
        let shown = match key {
            _ if v.is_null() => "null".to_owned(),
            "selector" => go_form::compact(v, go_form::SELECTOR),
            "podFailurePolicy" => go_form::compact(v, go_form::FAILURE_POLICY),
            "successPolicy" => go_form::compact(v, go_form::SUCCESS_POLICY),
            _ => show(v),
        };
        out.push(FieldError::invalid_raw(&path.child(key), shown, IMMUTABLE));
    };
    immutable(&mut out, "selector");
    let at = path.child("template");
    if is_adjustable(old) {
        if !same(&fixed_pod_spec(now), &fixed_pod_spec(was)) {
            let spec = go_form::pod_spec(now.at(&["template", "spec"]));
            let shown = go_form::compact(&spec, go_form::POD_SPEC);
            out.push(FieldError::invalid_raw(&at.child("spec"), shown, IMMUTABLE));
        }
    } else if !same(now.get("template"), was.get("template")) {
        let shown = shown_template(now.get("template"));
        out.push(FieldError::invalid_raw(&at, shown, IMMUTABLE));
    }
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(&mut out, key);
    }
    out
}

/// Prints a template like Go, whose embedded `ObjectMeta` puts the metadata members (under wire names) beside
/// `Spec`.
fn shown_template(t: &Value) -> String {
    let mut all: Vec<String> = t
        .get("metadata")
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
        .filter(|(_, v)| !v.is_empty_value())
        .map(|(k, v)| format!("{}:{}", quote(k), show(v)))
        .collect();
    let spec = go_form::pod_spec(t.get("spec"));
    all.push(format!("\"Spec\":{}", go_form::compact(&spec, go_form::POD_SPEC)));
    format!("{{{}}}", all.join(","))
}

/// True if scheduling fields and resources of the stored Job's pods may change: it is suspended and has no pods.
fn is_adjustable(old: &Value) -> bool {
    let idle = old.at(&["status", "active"]).as_i64().unwrap_or(0) == 0;
    let started = !old.at(&["status", "startTime"]).is_null();
    let conditions = old.at(&["status", "conditions"]).items();
    let suspended = conditions
        .iter()
        .any(|c| c.str_at(&["type"]) == "Suspended" && c.str_at(&["status"]) == "True");
    old.at(&["spec", "suspend"]).as_bool() == Some(true) && idle && (suspended || !started)
}

/// What even an adjustable Job's pods may not change. The metadata of the template is not compared.
fn fixed_pod_spec(spec: &Value) -> Value {
    let mut pod = spec.at(&["template", "spec"]).clone();
    for path in [
        &["nodeSelector"][..],
        &["tolerations"],
        &["affinity", "nodeAffinity"],
        &["schedulingGates"],
    ] {
        pod.unset(path);
    }
    if pod.get("affinity").is_empty_value() {
        pod.unset(&["affinity"]);
    }
    for list in ["containers", "initContainers"] {
        for c in crate::controlplane::fields::elements_mut(&mut pod, &[list]) {
            c.unset(&["resources"]);
        }
    }
    pod
}

fn completions(out: &mut ErrorList, now: &Value, was: &Value, at: &FieldPath) {
    let (new, old) = (now.get("completions"), was.get("completions"));
    if new == old || new.is_null() && now.str_at(&["completionMode"]) == "Indexed" {
        return;
    }
    if now.str_at(&["completionMode"]) != "Indexed" {
        out.push(FieldError::invalid(at, new.clone(), IMMUTABLE));
        return;
    }
    // Elastic indexed Jobs: completions may change if they remain equal to parallelism.
    let tandem = old != now.get("parallelism") && new == now.get("parallelism") || new == now.get("parallelism");
    if !tandem {
        out.push(FieldError::invalid(
            at,
            new.clone(),
            "can only be modified in tandem with spec.parallelism",
        ));
    }
}

/// Warns about indexed Jobs that are too large for reliable tracking of failed indexes.
pub(crate) fn warnings(spec: &Value, path: &str) -> Vec<String> {
    let number = |key: &str| spec.get(key).as_i64().unwrap_or(0);
    let large =
        spec.str_at(&["completionMode"]) == "Indexed" && number("completions") > MANY && number("parallelism") > 10_000;
    let text = format!(
        "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    );
    large.then_some(text).into_iter().collect()
}

/// Checks an enum without a default. Unlike `required_choice`, an empty value lists the valid ones.
fn choice(out: &mut ErrorList, v: &Value, key: &str, path: &FieldPath, supported: &[&str]) {
    if v.str_at(&[key]).is_empty() {
        let all = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" ");
        out.push(FieldError::required(&path.child(key), format!("valid values: [{all}]")));
    } else {
        required_choice(out, v, key, path, supported);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::controlplane::strategies::workloads::JOB;
    use crate::json;
    use crate::registry::strategy::Strategy;

    fn valid() -> Value {
        let mut v = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {
            "containers": [{"name": "main", "image": "a:1"}], "restartPolicy": "Never"}}}});
        JOB.default(&mut v);
        JOB.prepare_create(&mut v);
        v
    }

    #[test]
    fn minimal_job_is_valid() {
        assert_eq!(aggregate(&create(&valid())), "[]");
    }

    #[test]
    fn job_errors_match_the_recordings() {
        for (path, value, want) in [
            (
                &["spec", "template", "spec", "restartPolicy"][..],
                json!("Always"),
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (&["spec", "completionMode"], json!("Indexed"), "[]"),
            (
                &["spec", "maxFailedIndexes"],
                json!(1),
                "[spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode]",
            ),
            (
                &["spec", "backoffLimit"],
                json!(-1),
                "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
            ),
        ] {
            let mut v = valid();
            v.set(path, value);
            assert_eq!(aggregate(&create(&v)), want);
        }
    }

    #[test]
    fn completions_and_selector_are_immutable() {
        let old = valid();
        let mut new = old.clone();
        new.set(&["spec", "completions"], 5i64);
        assert_eq!(
            aggregate(&update(&new, &old)),
            "spec.completions: Invalid value: 5: field is immutable"
        );
        new.set(&["spec", "completions"], 1i64);
        new.set(&["spec", "parallelism"], 9i64);
        new.set(&["spec", "suspend"], true);
        assert_eq!(aggregate(&update(&new, &old)), "[]");
    }

    #[test]
    fn only_the_pod_spec_of_an_idle_job_is_compared() {
        let changed = |suspend: bool| {
            let mut old = valid();
            old.set(&["spec", "suspend"], suspend);
            let mut new = old.clone();
            new.set(&["spec", "template", "spec", "hostNetwork"], true);
            aggregate(&update(&new, &old))
        };
        assert!(changed(true).contains("spec.template.spec: Invalid value: {\"Volumes\":"));
        let running = changed(false);
        assert!(running.contains("spec.template: Invalid value: {"), "{running}");
    }

    #[test]
    fn empty_completion_mode_is_not_non_indexed() {
        let mut v = valid();
        v.set(&["spec", "completionMode"], "");
        v.set(&["spec", "backoffLimitPerIndex"], 1i64);
        assert_eq!(
            aggregate(&create(&v)),
            "spec.completionMode: Unsupported value: \"\": supported values: \"NonIndexed\", \"Indexed\""
        );
    }

    #[test]
    fn status_indexes_and_uncounted_pods_are_valid_and_unique() {
        let old = valid();
        let mut new = valid();
        new.set(
            &["status"],
            json!({"failedIndexes": "0", "completedIndexes": "9", "uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
        );
        let errors = aggregate(&status(&new, &old));
        for part in [
            "status.completedIndexes: Invalid value: \"9\": error parsing completedIndexes: too large index: \"9\"",
            "status.failedIndexes: Invalid value: \"0\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            "status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty",
            "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
        ] {
            assert!(errors.contains(part), "{errors}");
        }
    }
}
