//! The audit flags of both backends, with the checks of upstream's `pkg/server/options/audit.go`. Files are
//! opened later, by `app::audit`.

use super::{UsageError, Values, file};
use crate::audit::backend::log::{Format, Target};
use crate::audit::backend::rotate::Rotation;
use crate::audit::{API_VERSION, Batching, Mode, Truncation};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct AuditOptions {
    /// `--audit-policy-file`
    pub policy: Option<PathBuf>,
    /// `--audit-log-*`; absent without a path.
    pub log: Option<AuditLogOptions>,
    /// `--audit-webhook-*`; absent without a kubeconfig.
    pub webhook: Option<AuditWebhookOptions>,
}

#[derive(Clone, Debug)]
pub(crate) struct AuditLogOptions {
    /// Where events are written.
    pub target: Target,
    /// Format of the lines.
    pub format: Format,
    /// Blocking or batched.
    pub mode: Mode,
    /// Size limits, if enabled.
    pub truncation: Option<Truncation>,
}

#[derive(Clone, Debug)]
pub(crate) struct AuditWebhookOptions {
    pub config_file: PathBuf,
    /// Delay before the first retry.
    pub initial_backoff: Duration,
    /// Blocking or batched.
    pub mode: Mode,
    /// Size limits, if enabled.
    pub truncation: Option<Truncation>,
}

const MEGABYTE: u64 = 1024 * 1024;
const DAY: u64 = 24 * 3600;

impl AuditOptions {
    pub(super) fn read(values: &Values, warnings: &mut Vec<String>) -> Result<Self, UsageError> {
        let me = Self {
            policy: file(values, "audit-policy-file"),
            log: log(values)?,
            webhook: webhook(values)?,
        };
        // Warnings only: upstream accepts these combinations, too.
        if me.policy.is_none() {
            let idle = [
                (me.log.is_some(), "audit-log-path"),
                (me.webhook.is_some(), "audit-webhook-config-file"),
            ];
            for (_, flag) in idle.into_iter().filter(|(given, _)| *given) {
                warnings.push(format!(
                    "--{flag} has no effect: without --audit-policy-file nothing is recorded"
                ));
            }
        } else if me.log.is_none() && me.webhook.is_none() {
            warnings.push(
                "--audit-policy-file has no effect: neither --audit-log-path nor --audit-webhook-config-file is given"
                    .to_owned(),
            );
        }
        Ok(me)
    }
}

fn log(values: &Values) -> Result<Option<AuditLogOptions>, UsageError> {
    let Some(path) = file(values, "audit-log-path") else {
        return Ok(None);
    };
    let whole = |flag: &str| -> Result<u64, UsageError> {
        let n = values.int(flag)?;
        u64::try_from(n).map_err(|_| UsageError::new(format!("--{flag} {n} can't be a negative number")))
    };
    // Saturating: a value too large for the type means no limit.
    let rotation = Rotation {
        max_bytes: whole("audit-log-maxsize")?.saturating_mul(MEGABYTE),
        max_backups: usize::try_from(whole("audit-log-maxbackup")?).unwrap_or(usize::MAX),
        max_age: Duration::from_secs(whole("audit-log-maxage")?.saturating_mul(DAY)),
        compress: values.bool("audit-log-compress")?,
    };
    let format = match values.text("audit-log-format") {
        "json" => Format::Json,
        "legacy" => Format::Legacy,
        other => {
            return Err(UsageError::new(format!(
                "invalid audit log format {other}, allowed formats are \"json,legacy\" (--audit-log-format)"
            )));
        }
    };
    version(values, "audit-log-version")?;
    Ok(Some(AuditLogOptions {
        target: if path.as_os_str() == "-" {
            Target::Stdout
        } else {
            Target::File(path, rotation)
        },
        format,
        mode: mode(values, "log")?,
        truncation: truncation(values, "log")?,
    }))
}

fn webhook(values: &Values) -> Result<Option<AuditWebhookOptions>, UsageError> {
    let Some(config_file) = file(values, "audit-webhook-config-file") else {
        return Ok(None);
    };
    version(values, "audit-webhook-version")?;
    let older = "audit-webhook-batch-initial-backoff";
    // The older name counts only if the newer one is absent.
    let backoff = match values.is_given("audit-webhook-initial-backoff") || !values.is_given(older) {
        true => "audit-webhook-initial-backoff",
        false => older,
    };
    Ok(Some(AuditWebhookOptions {
        config_file,
        initial_backoff: values.duration(backoff)?,
        mode: mode(values, "webhook")?,
        truncation: truncation(values, "webhook")?,
    }))
}

fn version(values: &Values, flag: &str) -> Result<(), UsageError> {
    match values.text(flag) {
        API_VERSION => Ok(()),
        other => Err(UsageError::invalid(flag, other, format!("expected {API_VERSION}"))),
    }
}

/// A number of at least one.
fn positive(values: &Values, flag: &str) -> Result<usize, UsageError> {
    let n = values.int(flag)?;
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(UsageError::invalid(flag, &n.to_string(), "must be a positive number")),
    }
}

fn mode(values: &Values, of: &str) -> Result<Mode, UsageError> {
    let flag = format!("audit-{of}-mode");
    let batch = |key: &str| format!("audit-{of}-batch-{key}");
    match values.text(&flag) {
        "blocking" => Ok(Mode::Blocking),
        "blocking-strict" => Ok(Mode::BlockingStrict),
        "batch" => {
            // Checked only if it is used: the defaults of the log backend, 0, would not pass.
            let throttle = if values.bool(&batch("throttle-enable"))? {
                let qps = values.float(&batch("throttle-qps"))?;
                if qps <= 0.0 || !qps.is_finite() {
                    let flag = batch("throttle-qps");
                    return Err(UsageError::invalid(
                        &flag,
                        &qps.to_string(),
                        "must be a positive number",
                    ));
                }
                Some((qps, positive(values, &batch("throttle-burst"))?))
            } else {
                None
            };
            Ok(Mode::Batch(Batching {
                buffer: positive(values, &batch("buffer-size"))?,
                max_size: positive(values, &batch("max-size"))?,
                max_wait: values.duration(&batch("max-wait"))?,
                throttle,
            }))
        }
        other => Err(UsageError::new(format!(
            "invalid audit {of} mode {other}, allowed modes are \"batch,blocking,blocking-strict\" (--{flag})"
        ))),
    }
}

fn truncation(values: &Values, of: &str) -> Result<Option<Truncation>, UsageError> {
    if !values.bool(&format!("audit-{of}-truncate-enabled"))? {
        return Ok(None);
    }
    let batch_flag = format!("audit-{of}-truncate-max-batch-size");
    let limit = Truncation {
        max_event: positive(values, &format!("audit-{of}-truncate-max-event-size"))?,
        max_batch: positive(values, &batch_flag)?,
    };
    // Else an event of the permitted size would fit into no batch.
    if limit.max_batch < limit.max_event {
        return Err(UsageError::invalid(
            &batch_flag,
            &limit.max_batch.to_string(),
            format!(
                "must not be less than --audit-{of}-truncate-max-event-size, {}",
                limit.max_event
            ),
        ));
    }
    Ok(Some(limit))
}
