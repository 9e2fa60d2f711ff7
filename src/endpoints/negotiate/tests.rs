use super::*;
use http::header::{ACCEPT, USER_AGENT};

fn ask(accept: &str, offer: Offer) -> Result<Negotiated> {
    let mut h = HeaderMap::new();
    h.insert(ACCEPT, accept.parse().unwrap());
    negotiate(&h, &Query::parse(""), offer)
}

#[test]
fn table_requests_fall_back_to_json() {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    assert_eq!(ask(accept, Offer::Objects).unwrap().transform, Transform::Table("v1"));
    assert_eq!(ask(accept, Offer::Plain).unwrap().transform, Transform::None);
}

#[test]
fn custom_kinds_offer_protobuf_only_for_metadata() {
    let protobuf = "application/vnd.kubernetes.protobuf";
    let or_json = "application/vnd.kubernetes.protobuf,application/json";
    let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(ask(or_json, Offer::Objects).unwrap().media, Media::Protobuf);
    assert_eq!(ask(protobuf, Offer::CustomObjects).unwrap_err().code, 406);
    assert_eq!(ask(or_json, Offer::CustomObjects).unwrap().media, Media::Json);
    assert_eq!(ask(partial, Offer::CustomEvents).unwrap().media, Media::Protobuf);
}

#[test]
fn tables_are_not_offered_in_protobuf() {
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
    let n = ask(table, Offer::Objects).unwrap();
    assert_eq!((n.media, n.transform), (Media::Json, Transform::None));
}

#[test]
fn clauses_sort_by_quality_then_specificity() {
    assert_eq!(ask("*/*,application/yaml", Offer::Objects).unwrap().media, Media::Yaml);
    assert_eq!(
        ask("application/yaml;q=0.5,application/json", Offer::Objects)
            .unwrap()
            .media,
        Media::Json
    );
    assert_eq!(
        ask("application/yaml", Offer::Events).unwrap_err().message,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
}

#[test]
fn best_clause_decides_whether_a_watch_is_possible() {
    let message = |accept: &str| ask(accept, Offer::Events).unwrap_err().message;
    let streams = "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch";
    let objects = "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf";
    assert_eq!(message("*/*,application/yaml"), streams);
    assert_eq!(message("application/yaml;stream=watch"), objects);
    assert_eq!(message("application/json;stream=other"), objects);
    assert_eq!(message("application/json;v=v1"), objects);
    assert!(ask("application/json,application/yaml", Offer::Events).is_ok());
}

#[test]
fn stream_clauses_also_accept_documents() {
    let table = ask(
        "application/json;stream=watch;as=Table;g=meta.k8s.io;v=v1",
        Offer::Objects,
    )
    .unwrap();
    assert_eq!(table.transform, Transform::Table("v1"));
    assert_eq!(
        ask("application/json;stream=watch", Offer::Plain).unwrap().media,
        Media::Json
    );
    assert_eq!(
        ask("application/yaml;stream=watch", Offer::Plain).unwrap_err().code,
        406
    );
    assert_eq!(
        ask("application/json;stream=all", Offer::Objects).unwrap_err().code,
        406
    );
}

#[test]
fn empty_parameters_are_ignored() {
    let empty = ask("application/json;as=;g=;v=;sv=;stream=", Offer::Objects).unwrap();
    assert_eq!(empty.transform, Transform::None);
    assert_eq!(
        ask("application/json;as=;g=meta.k8s.io;v=v1", Offer::Objects)
            .unwrap_err()
            .code,
        406
    );
}

#[test]
fn router_check_only_accepts_bare_types() {
    let check = |accept: &str| {
        let mut h = HeaderMap::new();
        h.insert(ACCEPT, accept.parse().unwrap());
        router_check(&h, false, Codecs::default()).is_ok()
    };
    assert!(check("text/html, */*;q=0.1"));
    assert!(!check("application/*"));
    assert!(!check("text/html"));
}

#[test]
fn pretty_query_parameter_overrides_other_hints() {
    let mut h = HeaderMap::new();
    h.insert(USER_AGENT, "curl/8".parse().unwrap());
    assert!(is_pretty(&h, &Query::parse(""), false));
    assert!(!is_pretty(&h, &Query::parse("pretty=abc"), true));
}

#[test]
fn metadata_offer_excludes_tables() {
    let form = |kind: &str| {
        ask(
            &format!("application/json; as = {kind} ;g=meta.k8s.io;v=v1"),
            Offer::Metadata,
        )
    };
    assert_eq!(
        form("PartialObjectMetadata").unwrap().transform,
        Transform::Partial("v1")
    );
    assert_eq!(form("Table").unwrap_err().code, 406);
}

#[test]
fn stream_parameter_is_accepted_for_documents() {
    let media = |main: &str| {
        ask(&format!("{main};stream=watch"), Offer::Objects)
            .map(|n| n.media)
            .ok()
    };
    assert_eq!(media("application/json"), Some(Media::Json));
    assert_eq!(media("application/vnd.kubernetes.protobuf"), Some(Media::Protobuf));
    assert_eq!(media("application/yaml"), None);
    assert_eq!(ask("application/json;stream=x", Offer::Objects).ok(), None);
}
