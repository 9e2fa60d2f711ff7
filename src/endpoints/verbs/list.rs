//! GET of a collection.

use super::super::call::Call;
use super::super::group_version::Answer;
use super::super::negotiate::Offer;
use super::super::options::ListQuery;
use super::super::respond::list::{ListMeta, list as respond_list};
use crate::apimachinery::status::{Result, Status};
use crate::registry::Store;
use crate::storage::{ContinueToken, ListOptions, Listing, continue_token};

pub(crate) async fn list(call: Call) -> Answer {
    let negotiated = call.negotiate(Offer::Objects)?;
    let query = ListQuery::parse(&call.query, call.resource(), false)?;
    let options = options(&call, &query)?;
    let fresh = options.prefix.clone();
    let listing = match call.store().list(options).await {
        Err(s) if s.code == 410 && !query.token.is_empty() => return Err(renewed(call.store(), s, &query, &fresh)),
        other => other?,
    };
    let meta = meta(call.store(), &listing);
    respond_list(
        listing,
        &meta,
        call.resource(),
        negotiated,
        &call.parts.headers,
        &call.query,
    )
}

/// The list's own facts.
pub(crate) fn meta(store: &Store, listing: &Listing) -> ListMeta {
    let prefix = store.full_key_prefix();
    ListMeta {
        version: listing.revision.0.to_string(),
        token: listing
            .next
            .as_ref()
            .map_or_else(String::new, |t| continue_token::encode(t, prefix)),
        remaining: listing.next.as_ref().and(listing.remaining),
    }
}

/// What storage is asked for.
pub(crate) fn options(call: &Call, query: &ListQuery) -> Result<ListOptions> {
    let (prefix, single) = query.prefix(call.resource(), &call.cx.namespace);
    let token = match query.token.as_str() {
        "" => None,
        text => {
            if !query.version.is_empty() && query.version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = continue_token::decode(text, call.store().full_key_prefix());
            Some(token.map_err(|e| Status::bad_request(format!("continue key is not valid: {e}")))?)
        }
    };
    Ok(ListOptions {
        prefix,
        single,
        version: query.version_match()?,
        predicate: query.predicate(),
        limit: query.limit,
        token,
    })
}

/// An expired token's refusal carries one that goes on at the latest state.
fn renewed(store: &Store, mut status: Status, query: &ListQuery, _prefix: &str) -> Status {
    if let Ok(token) = continue_token::decode(&query.token, store.full_key_prefix()) {
        let token = ContinueToken { revision: None, ..token };
        status.continue_token = Some(continue_token::encode(&token, store.full_key_prefix()));
    }
    status
}
