//! Validation of network volume sources: NFS, iSCSI, Fibre Channel, Quobyte, Flocker and Glusterfs.

use super::SourceOwner;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::validation::{NameForm, name_is_dns_label};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;

pub(super) fn nfs(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let path = v.str_at(&["path"]);
    // A missing path has both errors.
    if !path.starts_with('/') {
        out.push(FieldError::invalid(&at.child("path"), path, "must be an absolute path"));
    }
}

/// Returns why an iSCSI name is invalid; `None` if it is valid. Upstream's message is less specific for
/// PersistentVolumes.
fn iscsi_name(name: &str, owner: SourceOwner<'_>) -> Option<&'static str> {
    let alphanumeric = |s: &str, n: usize| s.len() == n && s.bytes().all(|c| c.is_ascii_alphanumeric());
    let fine = if name.starts_with("iqn") {
        qualified(name)
    } else if let Some(rest) = name.strip_prefix("eui") {
        // Any character may separate the prefix: the dot in upstream's pattern is not escaped.
        // `split_at_checked` keeps a multi-byte character from panicking.
        rest.split_at_checked(1).is_some_and(|(_, id)| alphanumeric(id, 16))
    } else if let Some(rest) = name.strip_prefix("naa") {
        rest.split_at_checked(1).is_some_and(|(_, id)| alphanumeric(id, 32))
    } else if owner.persists() {
        false
    } else {
        return Some("must be valid format starting with iqn, eui, or naa");
    };
    (!fine).then_some("must be valid format")
}

/// True for a name like `iqn.2026-01.com.example:storage`. Upstream's regular expression is anchored only at
/// the end, so the match may start at any `iqn.` in the text.
fn qualified(name: &str) -> bool {
    name.match_indices("iqn.").any(|(i, lead)| {
        let text = &name[i + lead.len()..];
        let Some((date, text)) = text.split_at_checked(8) else {
            return false;
        };
        let dated = date.bytes().enumerate().all(|(i, c)| match i {
            4 => c == b'-',
            7 => c == b'.',
            _ => c.is_ascii_digit(),
        });
        // Only the first colon separates: the identifier may contain more.
        let Some((domain, own)) = text.split_once(':') else {
            return false;
        };
        let in_domain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.');
        dated
            && !domain.is_empty()
            && domain.bytes().all(in_domain)
            && !own.is_empty()
            && !own.contains([',', ';', '*', '&', '$', '|'])
            && !own.contains(char::is_whitespace)
    })
}

pub(super) fn iscsi(out: &mut ErrorList, v: &Value, volume: &FieldPath, owner: SourceOwner<'_>) {
    let at = volume.child("iscsi");
    let portal = v.str_at(&["targetPortal"]);
    if portal.is_empty() {
        out.push(FieldError::required(&at.child("targetPortal"), ""));
    }
    let (SourceOwner::Pod(owner_name) | SourceOwner::Persistent(owner_name)) = owner;
    let initiator = v.get("initiatorName").as_str();
    // With an initiator the kubelet names an iSCSI interface after portal and volume; the limit is that of such a
    // name.
    let long = initiator.is_some() && owner_name.len() + 1 + portal.len() > 64;
    const LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
    // Upstream's two functions report this at different points and paths.
    if long && owner.persists() {
        out.push(FieldError::invalid(&at.child("targetportal"), portal, LONG));
    }
    let name = v.str_at(&["iqn"]);
    if name.is_empty() {
        out.push(FieldError::required(&at.child("iqn"), ""));
    } else if let Some(why) = iscsi_name(name, owner) {
        out.push(FieldError::invalid(&at.child("iqn"), name, why));
    }
    lun(out, v, &at);
    let chap = |key: &str| v.get(key).as_bool() == Some(true);
    let secret = v.get("secretRef");
    if (chap("chapAuthDiscovery") || chap("chapAuthSession")) && secret.is_null() {
        out.push(FieldError::required(&at.child("secretRef"), ""));
    }
    if owner.persists() && !secret.is_null() && secret.str_at(&["name"]).is_empty() {
        out.push(FieldError::required(&at.child("secretRef").child("name"), ""));
    }
    if let Some(name) = initiator
        && let Some(why) = iscsi_name(name, owner)
    {
        out.push(FieldError::invalid(&at.child("initiatorname"), name, why));
    }
    if long && !owner.persists() {
        out.push(FieldError::invalid(&volume.child("name"), owner_name, LONG));
    }
}

fn lun(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    if let Some(n) = v.get("lun").as_i64().filter(|n| !(0..=255).contains(n)) {
        let why = "must be between 0 and 255, inclusive";
        out.push(FieldError::invalid(&at.child("lun"), n, why));
    }
}

pub(super) fn fibre_channel(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (names, ids) = (v.get("targetWWNs").items(), v.get("wwids").items());
    let at_names = at.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        let why = "must specify either targetWWNs or wwids, but not both";
        out.push(FieldError::required(&at_names, why));
    }
    if !names.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        out.push(FieldError::invalid(&at_names, v.get("targetWWNs").clone(), why));
    }
    // The unit number belongs to the world wide names; ids are complete.
    if names.is_empty() {
        return;
    }
    if v.get("lun").is_null() {
        let why = "lun is required if targetWWNs is specified";
        out.push(FieldError::required(&at.child("lun"), why));
    }
    lun(out, v, at);
}

pub(super) fn quobyte(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = v.str_at(&["registry"]);
    if registry.is_empty() {
        out.push(FieldError::required(&at.child("registry"), PAIRS));
    // `Required` for an excess length, and only beside a registry: both are upstream's.
    } else if v.str_at(&["tenant"]).len() > 64 {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        out.push(FieldError::required(&at.child("tenant"), why));
    } else {
        // One error per invalid pair, each with the whole list as bad value, as upstream.
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            out.push(FieldError::invalid(&at.child("registry"), registry, PAIRS));
        }
    }
    if v.str_at(&["volume"]).is_empty() {
        out.push(FieldError::required(&at.child("volume"), ""));
    }
}

/// True for `host:port` or `[host]:port`, with the rules of Go's `net.SplitHostPort`.
fn is_host_and_port(text: &str) -> bool {
    // The last colon, since IPv6 hosts contain more inside the brackets.
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(|h| !h.contains(['[', ']'])),
        None => !host.contains([':', '[', ']']) && !port.contains(['[', ']']),
    }
}

pub(super) fn flocker(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let (name, id) = (v.str_at(&["datasetName"]), v.str_at(&["datasetUUID"]));
    if name.is_empty() && id.is_empty() {
        let why = "one of datasetName and datasetUUID is required";
        out.push(FieldError::required(at, why));
    }
    if !name.is_empty() && !id.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        // The literal `resource` is upstream's bad value.
        out.push(FieldError::invalid(at, "resource", why));
    }
    if name.contains('/') {
        out.push(FieldError::invalid(
            &at.child("datasetName"),
            name,
            "must not contain '/'",
        ));
    }
}

pub(super) fn gluster_namespace(out: &mut ErrorList, v: &Value, at: &FieldPath) {
    let at = at.child("endpointsNamespace");
    match v.get("endpointsNamespace").as_str() {
        None => {}
        Some("") => {
            let why = "if the endpointnamespace is set, it must be a valid namespace name";
            out.push(FieldError::invalid(&at, "", why));
        }
        Some(name) => invalid_each(out, &at, name, name_is_dns_label(name, NameForm::Full)),
    }
}
