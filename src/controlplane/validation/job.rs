//! Validation of Jobs (upstream's `pkg/apis/batch/validation`): `policies` has the failure and success
//! policies, `status` the status subresource. CronJobs share [`spec`].

mod policies;
mod status;

use super::common::not_negative;
use super::workloads::{mismatch, stored_template};
use super::{go_form, pod};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::selector::labels::LabelSelector;
use crate::apimachinery::validation::{dns1123_label, domain_prefixed_path};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::{IMMUTABLE, optional_choice, required_choice, same, selector_check};
pub(crate) use status::status;

/// Label with the Job's uid, by which a Job selects its pods.
pub(crate) const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Label with the Job's name.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Labels the server adds to the pod template, unless `manualSelector` is set. The unprefixed ones are
/// legacy.
pub(crate) fn generated_labels<'a>(name: &'a str, uid: &'a str) -> [(&'static str, &'a str); 4] {
    [
        (CONTROLLER_UID, uid),
        ("controller-uid", uid),
        (JOB_NAME, name),
        ("job-name", name),
    ]
}

pub(crate) fn create(v: &Value) -> ErrorList {
    checked(v, None, true)
}

/// Checks a Job; `old` is the stored one. The prefixed generated labels may be missing unless `prefixed`.
fn checked(v: &Value, old: Option<&Value>, prefixed: bool) -> ErrorList {
    let mut out = ErrorList::new();
    generated(&mut out, v, prefixed);
    let path = FieldPath::new("spec");
    job(&mut out, v.get("spec"), old, &path);
    pod_names(&mut out, v);
    out
}

/// Checks a Job's spec together with its selector, which CronJob templates lack. `old` is the stored Job.
fn job(out: &mut ErrorList, spec: &Value, old: Option<&Value>, path: &FieldPath) {
    self::spec(out, spec, stored_template(old), path);
    let (selector, at) = (spec.get("selector"), path.child("selector"));
    if selector.is_null() {
        out.push(FieldError::required(&at, ""));
    } else {
        selector_check(old.map(|old| old.at(&["spec", "selector"])))(out, selector, &at);
    }
    // An unparsable selector has been reported; it cannot be compared with labels.
    if let Ok(s) = LabelSelector::from_object(selector) {
        let template = spec.get("template");
        if selector.is_null() || !s.matches_map(template.at(&["metadata", "labels"])) {
            mismatch(out, template, &path.child("template"));
        }
    }
}

/// Checks that the generated labels and selector are unchanged: the legacy labels, then the `prefixed` ones.
fn generated(out: &mut ErrorList, v: &Value, prefixed: bool) {
    // A missing selector is reported by `job`.
    if v.at(&["spec", "manualSelector"]).as_bool() == Some(true) || v.at(&["spec", "selector"]).is_null() {
        return;
    }
    let path = FieldPath::new("spec");
    let labels = v.at(&["spec", "template", "metadata", "labels"]);
    let at = path.child("template").child("metadata").child("labels");
    // The labels are what the controller finds pods by: with others a Job could adopt pods of another one.
    let [uid, legacy_uid, name, legacy_name] = generated_labels(v.name(), v.uid());
    let all = [legacy_uid, legacy_name, uid, name];
    let expected = if prefixed { &all[..] } else { &all[..2] };
    for (key, want) in expected {
        let detail = format!("must be '{want}'");
        match labels.get(key).as_str() {
            None => out.push(FieldError::required(&at.key(key), detail)),
            // Upstream's bad value is the whole label map.
            Some(has) if has != *want => out.push(FieldError::invalid_raw(&at.key(key), show_json(labels), detail)),
            Some(_) => {}
        }
    }
    let selector = v.at(&["spec", "selector"]);
    if let Ok(s) = LabelSelector::from_object(selector) {
        // Matched against the generated labels alone: a selector that also needs labels of the user was not
        // generated.
        let mut own = Value::object();
        for (key, value) in expected {
            own.set(&[*key], *value);
        }
        if !selector.is_null() && !s.matches_map(&own) {
            let shown = go_form::selector(selector);
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

/// Checks what Jobs and the templates of CronJobs have in common. `old` is the stored pod template.
pub(super) fn spec(out: &mut ErrorList, spec: &Value, old: Option<&Value>, path: &FieldPath) {
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
    // An unsupported mode has been reported and gets neither set of rules.
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
    pod::template(out, template, old, &at);
    restart_policy(out, spec, &at.child("spec"));
}

fn restart_policy(out: &mut ErrorList, spec: &Value, path: &FieldPath) {
    let at = path.child("restartPolicy");
    match spec.str_at(&["template", "spec", "restartPolicy"]) {
        // `Always` is the default of pod templates, so upstream treats it as a missing choice.
        "" | "Always" => out.push(FieldError::required(&at, "valid values: \"OnFailure\", \"Never\"")),
        // The kubelet would restart a failed container before the policy could see the failed pod.
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
        // Missing completions have been reported above.
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
    // Failed indexes are listed in the status: without these limits the list could exceed the size of an
    // object.
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
    let (path, now, was) = (FieldPath::new("spec"), new.get("spec"), old.get("spec"));
    // Older releases of upstream did not generate the prefixed labels, and the template cannot be changed later.
    let labels = was.at(&["template", "metadata", "labels"]);
    let prefixed = [CONTROLLER_UID, JOB_NAME].iter().all(|key| !labels.get(key).is_null());
    let mut out = checked(new, Some(old), prefixed);
    // As upstream, the spec is checked twice on update, so causes repeat: the strategy calls `ValidateJob` before
    // `ValidateJobUpdate`, which validates the spec once more.
    job(&mut out, now, Some(old), &path);
    completions(&mut out, now, was, &path.child("completions"));
    let immutable = |out: &mut ErrorList, key: &str| {
        let v = now.get(key);
        if same(v, was.get(key)) {
            return;
        }
        let shown = match key {
            _ if v.is_null() => "null".to_owned(),
            // Internal structs print under Go names; scalars and strings print as they are.
            "selector" => go_form::selector(v),
            "podFailurePolicy" => go_form::compact(v, go_form::FAILURE_POLICY),
            "successPolicy" => go_form::compact(v, go_form::SUCCESS_POLICY),
            _ => show_json(v),
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
        let template = now.get("template");
        let spec = go_form::pod_spec(template.get("spec"));
        let shown = go_form::template(template.get("metadata"), &spec, go_form::POD_SPEC);
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

/// The part of the pod spec that is immutable even in an adjustable Job. The metadata of the template is not
/// compared.
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
    // Adding or removing node affinity may add or remove the surrounding object.
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
    // Completions are required for indexed Jobs, so null is reported by `spec`.
    if new == old || new.is_null() && now.str_at(&["completionMode"]) == "Indexed" {
        return;
    }
    if now.str_at(&["completionMode"]) != "Indexed" {
        out.push(FieldError::invalid(at, new.clone(), IMMUTABLE));
        return;
    }
    // Elastic indexed Jobs: completions may change if they remain equal to parallelism.
    if new != now.get("parallelism") {
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
        // As Go prints a slice of strings with `%q`.
        let all = supported.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" ");
        out.push(FieldError::required(&path.child(key), format!("valid values: [{all}]")));
    } else {
        required_choice(out, v, key, path, supported);
    }
}

#[cfg(test)]
mod tests;
