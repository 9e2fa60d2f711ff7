//! Deletes the objects that a case created, so that the next one finds the initial state.

use crate::http::{Client, Request};
use crate::paths;
use serde_json::{Value, json};

/// The paths of created objects, in order.
#[derive(Default)]
pub(crate) struct Created(Vec<String>);

/// A request of the administrator, with a JSON body (for PATCH a merge patch).
pub(crate) fn request(admin: &str, method: &str, path: &str, body: Option<&Value>) -> Request {
    let of_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = [
        ("Host", "localhost"),
        ("User-Agent", "parity-setup/1.0"),
        ("Accept", "application/json"),
        ("Authorization", &format!("Bearer {admin}")),
        ("Content-Type", of_type),
    ];
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: headers.map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        body: body.map(|b| b.to_string().into_bytes()),
    }
}

impl Created {
    pub(crate) fn add(&mut self, path: String) {
        if !self.0.contains(&path) {
            self.0.push(path);
        }
    }

    /// Notes the object of a request that succeeded, if it created one or may have.
    pub(crate) fn note(&mut self, request: &Request, status: u16, document: &Value) {
        let writes = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
        let name = paths::text(document, "metadata.name");
        if !writes || !(200..300).contains(&status) || request.path.contains("dryRun") || name.is_empty() {
            return;
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let root = if parts[0] == "api" { 2 } else { 3 };
        let below = match parts.get(root..).unwrap_or_default() {
            ["namespaces", _, "status" | "finalize"] => return,
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        // Subresources have a longer path than objects.
        match (request.method.as_str(), below.len()) {
            ("POST", 1) => self.add(format!("{path}/{name}")),
            ("PUT" | "PATCH", 2) => self.add(path.to_owned()),
            _ => {}
        }
    }

    /// Deletes the objects, the latest first. Failures are ignored: the object may already be deleted.
    pub(crate) fn remove(&mut self, client: &mut Client, admin: &str) {
        let namespaces: Vec<String> = self.0.iter().filter(|p| is_namespace(p)).cloned().collect();
        for path in self.0.drain(..).rev() {
            if is_namespace(&path) {
                let name = path.rsplit('/').next().unwrap_or_default();
                let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}});
                let _ = client.send(&request(admin, "DELETE", &path, None));
                let _ = client.send(&request(admin, "PUT", &format!("{path}/finalize"), Some(&object)));
                continue;
            }
            // The content of a deleted namespace need not be deleted.
            if namespaces.iter().any(|n| path.starts_with(&format!("{n}/"))) {
                continue;
            }
            let now = format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background");
            let deleted = client.send(&request(admin, "DELETE", &now, None));
            let waits = |body: &[u8]| String::from_utf8_lossy(body).contains("\"finalizers\"");
            if deleted.is_ok_and(|d| d.status == 200 && waits(&d.body)) {
                let nothing = json!({"metadata": {"finalizers": null}});
                let _ = client.send(&request(admin, "PATCH", &path, Some(&nothing)));
            }
        }
    }
}

fn is_namespace(path: &str) -> bool {
    path.strip_prefix("/api/v1/namespaces/")
        .is_some_and(|name| !name.contains('/'))
}
