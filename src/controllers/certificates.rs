//! Certificate signing requests for the signers that Kubernetes defines (`pkg/controller/certificates`):
//! approves requests of kubelets for their own certificates, signs approved requests, and deletes old ones.
//!
//! `rules` checks requests for a signer, `signing` has the CAs, `cleaner` decides how long a request is kept.

mod cleaner;
mod rules;
mod signing;

pub(crate) use cleaner::start as start_cleaner;
pub(crate) use signing::SigningConfig;

use super::loopback::{Failure, Loopback, Path, encode, found};
use super::sized;
use super::term::Term;
use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::json;
use crate::pki::Signer;
use crate::storage::{Entry, MinRevision};
use crate::tasks::off_thread;
use crate::x509::CertificateRequest;
use ::time::OffsetDateTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use std::sync::{Arc, LazyLock};

const GROUP: &str = "certificates.k8s.io";
const QUEUE: &str = "certificate";

/// The state of a request that decides which loop handles it.
#[derive(Debug, PartialEq, Eq)]
struct State {
    /// Neither approved nor denied.
    undecided: bool,
    /// Approved, not failed, and without a certificate.
    unsigned: bool,
}

impl State {
    fn from_entry(entry: &Entry) -> Self {
        static PARTS: LazyLock<Mask> = LazyLock::new(|| Mask::of(&["status.{conditions,certificate}"]));
        Self::from_value(&entry.decode_parts(&PARTS))
    }

    fn from_value(request: &Value) -> Self {
        let issued = !request.str_at(&["status", "certificate"]).is_empty();
        let has = |kind| conditions::find(request, kind).is_some();
        let (approved, denied) = (has("Approved"), has("Denied"));
        Self {
            undecided: !issued && !approved && !denied,
            // A denial wins over an approval (upstream's `IsCertificateRequestApproved`).
            unsigned: !issued && approved && !denied && !conditions::holds(request, "Failed"),
        }
    }
}

/// A request that a loop handles, read off the reactor if it is large.
struct Request {
    object: Value,
    size: usize,
    usages: Vec<Str>,
    /// The parsed `spec.request`, and the result of the signer's checks.
    parsed: Result<(CertificateRequest, Result<(), rules::Refused>), Failure>,
}

impl Request {
    fn from_entry(entry: &Entry) -> Self {
        let object = entry.decode();
        let usages = rules::usages(&object);
        let parsed = parse(&object).map(|wanted| {
            let checked = rules::check(object.str_at(&["spec", "signerName"]), &wanted, &usages);
            (wanted, checked)
        });
        Self {
            size: entry.json.len(),
            object,
            usages,
            parsed,
        }
    }

    /// Encodes the object with a change.
    async fn changed(
        object: Value,
        size: usize,
        change: impl FnOnce(&mut Value) + Send + 'static,
    ) -> Result<Bytes, Failure> {
        let changed = move || {
            let mut object = object;
            change(&mut object);
            encode(&object)
        };
        sized::compute(size, changed).await
    }
}

fn add_condition(request: &mut Value, condition: Value) {
    let mut all = request.at(&["status", "conditions"]).items().to_vec();
    all.push(condition);
    request.set(&["status", "conditions"], all);
}

/// Calls `work` with each request that `wanted` selects, until it no longer does.
fn process<F>(
    term: &Term,
    wanted: fn(&State) -> bool,
    work: impl Fn(Loopback, Request) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let queue = term.queue::<Str>(QUEUE);
    let changed = queue.clone();
    let followed = term.inform((GROUP, "certificatesigningrequests"), State::from_entry, |requests| {
        requests.subscribe(move |change: &Change<'_, State>| {
            if change.new.is_some_and(|s| wanted(s)) {
                changed.add(change.key.into());
            }
        });
    });
    let (Some(_), Some(storage)) = (followed, term.storage(GROUP, "certificatesigningrequests")) else {
        return;
    };
    let api = term.client("certificate-controller");
    term.process(QUEUE, &queue, 1, move |name: Str| {
        let (api, storage, work) = (api.clone(), storage.clone(), work.clone());
        async move {
            // The latest state: approval may have been followed by a denial that the cache has not seen.
            let live = storage.get(&name, MinRevision::Latest).await?;
            let read = move |entry: &Entry| wanted(&State::from_entry(entry)).then(|| Request::from_entry(entry));
            match sized::read(live, read).await?.flatten() {
                Some(request) => work(api, request).await,
                None => Ok(()),
            }
        }
    });
}

/// Parses `spec.request`.
fn parse(request: &Value) -> Result<CertificateRequest, Failure> {
    let fail = |why: String| Failure::unreadable(format!("unable to parse csr {:?}: {why}", request.name()));
    let pem = STANDARD.decode(request.str_at(&["spec", "request"]));
    let pem = pem.map_err(|e| fail(e.to_string()))?;
    CertificateRequest::from_pem(&pem).map_err(|e| fail(e.to_string()))
}

fn path(name: &str) -> Path<'_> {
    Path::of(GROUP, "v1", "", "certificatesigningrequests").name(name)
}

/// Starts the loop that approves.
pub(crate) fn start_approver(term: &Term) {
    process(term, |s| s.undecided, approve);
}

/// Approves the request of a kubelet that is authorized to make it.
async fn approve(api: Loopback, request: Request) -> Result<(), Failure> {
    let (wanted, checked) = request.parsed?;
    let (size, request) = (request.size, request.object);
    if request.str_at(&["spec", "signerName"]) != rules::KUBELET_CLIENT || checked.is_err() {
        return Ok(());
    }
    // A renewal: the node already authenticates with the name that it asks for.
    let own = request.str_at(&["spec", "username"]) == wanted.subject.common_name();
    let own = own.then_some((
        "selfnodeclient",
        "Auto approving self kubelet client certificate after SubjectAccessReview.",
    ));
    let any = (
        "nodeclient",
        "Auto approving kubelet client certificate after SubjectAccessReview.",
    );
    let mut tried = Vec::new();
    // The narrower permission first, as upstream: a node may renew its own certificate without the other one.
    for (subresource, message) in own.into_iter().chain([any]) {
        tried.push(subresource);
        if !may(&api, &request, subresource).await? {
            continue;
        }
        let name = Str::from(request.name());
        let approved = json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
        let changed = Request::changed(request, size, |request| add_condition(request, approved)).await?;
        return found(api.replace(path(&name).subresource("approval"), changed).await).map(drop);
    }
    // An error, so that the request is retried with backoff: the permission may be granted later.
    Err(Failure::unreadable(format!(
        "recognized csr {:?} as [{}] but subject access review was not approved",
        request.name(),
        tried.join(" ")
    )))
}

/// Whether the requesting user may create this subresource of certificate signing requests.
async fn may(api: &Loopback, request: &Value, subresource: &str) -> Result<bool, Failure> {
    let spec = request.get("spec");
    let attributes = json!({"group": GROUP, "resource": "certificatesigningrequests", "verb": "create", "version": "*",
        "subresource": subresource});
    let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"resourceAttributes": (attributes)}});
    // The user as the registry recorded it at creation; clients cannot set these fields themselves.
    for (from, to) in [
        ("username", "user"),
        ("uid", "uid"),
        ("groups", "groups"),
        ("extra", "extra"),
    ] {
        if !spec.get(from).is_null() {
            review.set(&["spec", to], spec.get(from).clone());
        }
    }
    let reviews = Path::of("authorization.k8s.io", "v1", "", "subjectaccessreviews");
    let answer = api.ask(reviews, &review).await?;
    Ok(answer.at(&["status", "allowed"]).as_bool() == Some(true))
}

/// Starts the loop that signs.
pub(crate) fn start_signer(term: &Term) {
    let config = term.signing.clone();
    if config.clients.is_none() {
        tracing::warn!("client certificates are not signed: the CA's key is unknown; set --cluster-signing-cert-file");
    }
    process(
        term,
        |s| s.unsigned,
        move |api, request| sign(config.clone(), api, request),
    );
}

async fn sign(config: Arc<SigningConfig>, api: Loopback, request: Request) -> Result<(), Failure> {
    let signer = Str::from(request.object.str_at(&["spec", "signerName"]));
    let Some((ca, key)) = config.of(&signer).cloned() else {
        // Custom signers have their own controllers.
        return Ok(());
    };
    let (wanted, checked) = request.parsed?;
    let (size, usages, request) = (request.size, request.usages, request.object);
    let name = Str::from(request.name());
    let now = OffsetDateTime::now_utc();
    let changed = if let Err(why) = checked {
        let at = time::format(now);
        // Recorded, not retried: the request is immutable, so the checks would fail again.
        let failed = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure",
            "message": (why.to_string()), "lastUpdateTime": (at)});
        Request::changed(request, size, |request| add_condition(request, failed)).await?
    } else {
        let life = config.life(&request);
        // The files are read each time, so that replaced ones are used.
        let signed = off_thread(0, move || {
            let usages: Vec<&str> = usages.iter().map(Str::as_str).collect();
            Signer::load(&ca, &key).and_then(|s| s.sign(&wanted, &usages, life, now))
        });
        let signed = signed
            .await
            .ok_or_else(|| Failure::unreadable("the gateway is shutting down"))?;
        let pem = signed.map_err(|e| Failure::unreadable(format!("error auto signing csr: {e}")))?;
        let set = move |request: &mut Value| request.set(&["status", "certificate"], STANDARD.encode(pem));
        Request::changed(request, size, set).await?
    };
    found(api.replace(path(&name).subresource("status"), changed).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn certificate_lifetimes_follow_the_request_within_limits() {
        let config = SigningConfig {
            clients: None,
            kubelets: None,
            longest: Duration::from_secs(7200),
        };
        let life = |asked: Value| {
            let request = json!({"spec": {"expirationSeconds": (asked)}});
            config.life(&request).as_secs()
        };
        assert_eq!(life(Value::Null), 7200);
        assert_eq!(life(3600i64.into()), 3600);
        assert_eq!(life(60i64.into()), 600);
        assert_eq!(life(99_999i64.into()), 7200);
    }

    #[test]
    fn a_request_is_decided_once_and_signed_once() {
        let state = |conditions: Value, certificate: &str| {
            let s = State::from_value(&json!({"status": {"conditions": (conditions), "certificate": certificate}}));
            (s.undecided, s.unsigned)
        };
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        assert_eq!(state(json!([]), ""), (true, false));
        assert_eq!(state(json!([(condition("Approved"))]), ""), (false, true));
        assert_eq!(state(json!([(condition("Denied"))]), ""), (false, false));
        assert_eq!(
            state(json!([(condition("Approved")), (condition("Failed"))]), ""),
            (false, false)
        );
        assert_eq!(state(json!([(condition("Approved"))]), "LS0t"), (false, false));
    }
}
