//! A recorded request: the data collected about it ([`RequestSummary`]), and its events ([`Record::submit`]).

use crate::audit::event::{ObjectRef, ResponseStatus, Subject};
use crate::audit::{Audit, Event, PendingWrites, Stage, Verdict};
use crate::request::audit::AuditData;
use crate::request::{AuditLevel, AuditTrail, RequestContext, RequestInfo, UserInfo};
use crate::server::respond;
use crate::sync::{Mutex, MutexGuard};
use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Maximum length of a recorded user agent, in bytes.
const MAX_USER_AGENT: usize = 1024;
/// Maximum number of forwarding addresses that are looked at: clients choose how many there are.
const MAX_FORWARDED: usize = 64;
/// Requests slower than this are annotated with their latency.
const SLOW: Duration = Duration::from_millis(500);

/// Data for the events, collected from the request head and the request context.
pub(in crate::server::filters) struct RequestSummary {
    pub info: Arc<RequestInfo>,
    audit_id: Arc<str>,
    uri: String,
    source_ips: Vec<IpAddr>,
    user_agent: String,
    received: Instant,
    deadline: Option<Instant>,
}

impl RequestSummary {
    pub(crate) fn of(req: &crate::request::Request, info: Arc<RequestInfo>) -> Self {
        Self::of_parts(req.uri(), req.headers(), RequestContext::of(req), info)
    }

    pub(crate) fn of_parts(uri: &Uri, headers: &HeaderMap, known: &RequestContext, info: Arc<RequestInfo>) -> Self {
        Self {
            info,
            audit_id: known.audit_id.as_ref().map_or_else(|| "".into(), |id| id.text().into()),
            uri: respond::request_uri(uri).to_owned(),
            source_ips: source_ips(headers, known.remote.map(|a| a.0.ip())),
            user_agent: user_agent(headers),
            received: known.received.unwrap_or_else(now),
            deadline: known.deadline,
        }
    }
}

/// The time by Tokio's clock, because tests can pause it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The user agent, truncated like upstream's.
fn user_agent(headers: &HeaderMap) -> String {
    let said = headers.get(USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()));
    let said = said.unwrap_or_default();
    if said.len() <= MAX_USER_AGENT {
        return said.into_owned();
    }
    format!("{}...TRUNCATED", &said[..said.floor_char_boundary(MAX_USER_AGENT)])
}

/// The client addresses: those in the forwarding headers, then the peer (upstream's `SourceIPs` in
/// `k8s.io/apimachinery/pkg/util/net/http.go`).
fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<IpAddr> {
    let said = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
    let forwarded = said("x-forwarded-for").split(',').take(MAX_FORWARDED);
    let mut ips: Vec<IpAddr> = forwarded.filter_map(|ip| ip.trim().parse().ok()).collect();
    if let Ok(real) = said("x-real-ip").parse::<IpAddr>()
        && !ips.contains(&real)
    {
        ips.push(real);
    }
    if let Some(peer) = peer
        && ips.last() != Some(&peer)
    {
        ips.push(peer);
    }
    ips
}

/// A request that is being recorded.
pub(super) struct Record {
    audit: Arc<Audit>,
    verdict: Verdict,
    subject: Arc<Subject>,
    received: Instant,
    deadline: Option<Instant>,
    /// Collects annotations and objects from the handlers.
    pub trail: AuditTrail,
}

impl Record {
    pub(crate) fn new(
        audit: Arc<Audit>,
        verdict: Verdict,
        summary: RequestSummary,
        user: Option<Arc<UserInfo>>,
    ) -> Self {
        let subject = Subject {
            audit_id: summary.audit_id,
            uri: summary.uri,
            info: summary.info,
            user,
            source_ips: summary.source_ips,
            user_agent: summary.user_agent,
            // The context only has the monotonic time of the arrival; the event needs the wall-clock time.
            received: OffsetDateTime::now_utc() - now().saturating_duration_since(summary.received),
        };
        Self {
            audit,
            verdict,
            // Shared by the events of all stages, which may wait in several backends.
            subject: Arc::new(subject),
            received: summary.received,
            deadline: summary.deadline,
            trail: AuditTrail::new(verdict.level, verdict.omit_managed_fields),
        }
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    pub(crate) fn is_long_running(&self) -> bool {
        self.subject.info.is_long_running()
    }

    pub(crate) fn is_delete(&self) -> bool {
        matches!(self.subject.info.verb.as_str(), "delete" | "deletecollection")
    }

    /// Whether response objects are recorded. The responses of long-running requests are not.
    pub(crate) fn wants_responses(&self) -> bool {
        self.verdict.level == AuditLevel::RequestResponse && !self.is_long_running()
    }

    /// Submits the event of a stage to the backends, unless the policy omits that stage.
    pub(crate) fn submit(&self, stage: Stage, status: Option<ResponseStatus>, object: Option<Bytes>) -> PendingWrites {
        if self.verdict.omit_stages.has(stage) {
            return PendingWrites::default();
        }
        let info = &self.subject.info;
        let AuditData {
            mut annotations,
            impersonated,
            object: said,
            request_object,
        } = self.trail.snapshot();
        let took = now().saturating_duration_since(self.received);
        let done = matches!(stage, Stage::ResponseComplete | Stage::Panic);
        // Long-running requests are slow by nature.
        if done && took > SLOW && !self.is_long_running() {
            for (part, took) in self.trail.parts().durations().chain([("total", took)]) {
                let key = format!("apiserver.latency.k8s.io/{part}");
                annotations.insert(key, crate::apimachinery::time::go_duration(took));
            }
        }
        let said = said.unwrap_or_default();
        // A create has no name in its path, so the object's own is recorded.
        let or = |path: &str, body: String| if path.is_empty() { body } else { path.to_owned() };
        let object_ref = info.is_resource.then(|| ObjectRef {
            namespace: or(&info.namespace, said.namespace),
            name: or(&info.name, said.name),
            uid: said.uid,
            resource_version: said.resource_version,
        });
        let at = match stage {
            // As upstream, both timestamps of the first event are equal.
            Stage::RequestReceived => self.subject.received,
            _ => OffsetDateTime::now_utc(),
        };
        self.audit.submit(Event {
            subject: self.subject.clone(),
            level: self.verdict.level,
            stage,
            impersonated,
            object: object_ref,
            status,
            request_object,
            response_object: object,
            at,
            annotations,
        })
    }

    /// The status recorded for a request without a response: its deadline passed, or its client disconnected.
    fn unanswered(&self) -> ResponseStatus {
        if self.deadline.is_some_and(|d| now() >= d) {
            return ResponseStatus {
                code: 504,
                status: "Failure".to_owned(),
                message: "Timeout: request did not complete within the allotted timeout".to_owned(),
                reason: "Timeout".to_owned(),
                ..ResponseStatus::default()
            };
        }
        // As upstream, even if nothing was sent before the client left.
        ResponseStatus {
            code: 200,
            status: "Success".to_owned(),
            message: "Connection closed early".to_owned(),
            ..ResponseStatus::default()
        }
    }
}

/// Records a request's last event when dropped, unless closed before.
pub(super) struct CompletionGuard(Mutex<(Option<Arc<Record>>, Option<ResponseStatus>)>);

impl CompletionGuard {
    pub(crate) fn new(record: Arc<Record>) -> Self {
        Self(Mutex::new((Some(record), None)))
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Arc<Record>>, Option<ResponseStatus>)> {
        self.0.lock()
    }

    /// Sets the status to record.
    pub(crate) fn answered(&self, status: ResponseStatus) {
        self.lock().1 = Some(status);
    }

    /// Disarms the guard, because the last event is recorded elsewhere.
    pub(crate) fn close(&self) {
        self.lock().0 = None;
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        let (record, status) = std::mem::take(&mut *self.lock());
        if let Some(record) = record {
            let status = status.unwrap_or_else(|| record.unanswered());
            // Not awaited: the response does not depend on the event.
            drop(record.submit(Stage::ResponseComplete, Some(status), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(k, v): &(&'static str, &str)| (http::HeaderName::from_static(k), v.parse().unwrap());
        list.iter().map(pair).collect()
    }

    #[test]
    fn source_ips_are_limited() {
        let many = "1.1.1.1,".repeat(100_000);
        let ips = source_ips(&headers(&[("x-forwarded-for", &many)]), None);
        assert_eq!(ips.len(), MAX_FORWARDED);
    }

    #[test]
    fn source_ips_are_the_forwarded_ones_and_the_peer() {
        let peer = Some("9.9.9.9".parse().unwrap());
        for (list, want) in [
            (&[][..], "9.9.9.9"),
            (&[("x-forwarded-for", "1.1.1.1, junk, ::2")], "1.1.1.1 ::2 9.9.9.9"),
            (&[("x-forwarded-for", "1.1.1.1,9.9.9.9")], "1.1.1.1 9.9.9.9"),
            (
                &[("x-forwarded-for", "1.1.1.1"), ("x-real-ip", "1.1.1.1")],
                "1.1.1.1 9.9.9.9",
            ),
            (&[("x-real-ip", "3.3.3.3")], "3.3.3.3 9.9.9.9"),
        ] {
            let ips = source_ips(&headers(list), peer);
            let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
            assert_eq!(ips.join(" "), want, "{list:?}");
        }
    }

    #[test]
    fn long_user_agents_are_truncated() {
        let long = "x".repeat(2000);
        let cut = user_agent(&headers(&[("user-agent", &long)]));
        assert_eq!(cut, format!("{}...TRUNCATED", "x".repeat(1024)));
        assert_eq!(user_agent(&headers(&[("user-agent", "kubectl")])), "kubectl");
    }
}
