//! Certificate signing requests for the signers that Kubernetes defines (`pkg/controller/certificates`):
//! approves requests of kubelets for their own certificates, signs approved requests, and deletes old ones.
//!
//! `rules` says what a signer accepts, `cleaner` how long a request is kept.

mod cleaner;
mod rules;
mod signing;

pub(crate) use cleaner::start as start_cleaner;
pub(crate) use signing::SigningConfig;

use super::loopback::{Failure, Loopback, Path, found};
use super::term::Term;
use crate::apimachinery::conditions;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::time;
use crate::apimachinery::value::{Str, Value};
use crate::client::Change;
use crate::json;
use crate::pki::Signer;
use crate::storage::{Entry, MinRevision, Storage};
use crate::tasks::off_thread;
use crate::x509::CertificateRequest;
use ::time::OffsetDateTime;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

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
        Self::from_value(&entry.decode())
    }

    fn from_value(request: &Value) -> Self {
        let issued = !request.str_at(&["status", "certificate"]).is_empty();
        let has = |kind| conditions::find(request, kind).is_some();
        let (approved, denied) = (has("Approved"), has("Denied"));
        Self {
            undecided: !issued && !approved && !denied,
            unsigned: !issued && approved && !denied && !conditions::holds(request, "Failed"),
        }
    }
}

/// Calls `work` with each request that `wanted` selects, until it no longer does.
fn process<F>(
    term: &Term,
    wanted: fn(&State) -> bool,
    work: impl Fn(Loopback, Value) -> F + Clone + Send + Sync + 'static,
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
            match read(&*storage, &name).await? {
                Some(request) if wanted(&State::from_value(&request)) => work(api, request).await,
                _ => Ok(()),
            }
        }
    });
}

async fn read(storage: &dyn Storage, name: &str) -> Result<Option<Value>, Failure> {
    let entry = storage.get(name, MinRevision::Latest).await?;
    Ok(entry.map(|e| e.decode()))
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
async fn approve(api: Loopback, mut request: Value) -> Result<(), Failure> {
    let wanted = parse(&request)?;
    if request.str_at(&["spec", "signerName"]) != rules::KUBELET_CLIENT
        || rules::check(rules::KUBELET_CLIENT, &wanted, &rules::usages(&request)).is_err()
    {
        return Ok(());
    }
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
    for (subresource, message) in own.into_iter().chain([any]) {
        tried.push(subresource);
        if !may(&api, &request, subresource).await? {
            continue;
        }
        let mut all = request.at(&["status", "conditions"]).items().to_vec();
        all.push(json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}));
        request.set(&["status", "conditions"], all);
        let name = Str::from(request.name());
        return found(api.replace(path(&name).subresource("approval"), &request).await).map(drop);
    }
    // The permission may be given later.
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
    let answer = api.create(reviews, &review).await?;
    Ok(answer.at(&["status", "allowed"]).as_bool() == Some(true))
}

/// Starts the loop that signs.
pub(crate) fn start_signer(term: &Term) {
    let config = term.signing.clone();
    if config.clients.is_none() {
        tracing::warn!(
            "no certificates of clients are signed: the CA's key is not known; set --cluster-signing-cert-file"
        );
    }
    process(
        term,
        |s| s.unsigned,
        move |api, request| sign(config.clone(), api, request),
    );
}

async fn sign(config: Arc<SigningConfig>, api: Loopback, mut request: Value) -> Result<(), Failure> {
    let signer = Str::from(request.str_at(&["spec", "signerName"]));
    let Some((ca, key)) = config.of(&signer).cloned() else {
        return Ok(());
    };
    let wanted = parse(&request)?;
    let usages = rules::usages(&request);
    let now = OffsetDateTime::now_utc();
    if let Err(why) = rules::check(&signer, &wanted, &usages) {
        let at = time::format(now);
        let mut all = request.at(&["status", "conditions"]).items().to_vec();
        all.push(
            json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": (why.to_string()),
            "lastUpdateTime": (at)}),
        );
        request.set(&["status", "conditions"], all);
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
        request.set(&["status", "certificate"], STANDARD.encode(pem));
    }
    let name = Str::from(request.name());
    found(api.replace(path(&name).subresource("status"), &request).await).map(drop)
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
