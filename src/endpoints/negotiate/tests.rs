use super::*;

fn ask(accept: &str, offer: Offer) -> Result<Negotiated> {
    let mut h = HeaderMap::new();
    h.insert(ACCEPT, accept.parse().unwrap());
    negotiate(&h, &Query::parse(""), offer)
}

#[test]
fn kubectls_tables_fall_back_to_json_where_there_is_none() {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    assert_eq!(ask(accept, Offer::Objects).unwrap().transform, Transform::Table("v1"));
    assert_eq!(ask(accept, Offer::Plain).unwrap().transform, Transform::None);
}

#[test]
fn custom_kinds_have_protobuf_for_their_metadata_alone() {
    let protobuf = "application/vnd.kubernetes.protobuf";
    let or_json = "application/vnd.kubernetes.protobuf,application/json";
    let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    assert_eq!(ask(or_json, Offer::Objects).unwrap().media, Media::Protobuf);
    assert_eq!(ask(protobuf, Offer::CustomObjects).unwrap_err().code, 406);
    assert_eq!(ask(or_json, Offer::CustomObjects).unwrap().media, Media::Json);
    assert_eq!(ask(partial, Offer::CustomEvents).unwrap().media, Media::Protobuf);
}

#[test]
fn tables_are_not_in_protobuf() {
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
    let n = ask(table, Offer::Objects).unwrap();
    assert_eq!((n.media, n.transform), (Media::Json, Transform::None));
}

#[test]
fn quality_sorts_and_specific_beats_star() {
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
fn the_best_clause_decides_whether_a_watch_can_be() {
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
fn who_takes_a_stream_takes_a_document_too() {
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
fn parameters_without_a_value_ask_for_nothing() {
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
fn the_router_knows_bare_types_only() {
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
fn the_query_decides_alone_about_pretty() {
    let mut h = HeaderMap::new();
    h.insert(USER_AGENT, "curl/8".parse().unwrap());
    assert!(is_pretty(&h, &Query::parse(""), false));
    assert!(!is_pretty(&h, &Query::parse("pretty=abc"), true));
}

#[test]
fn answers_without_a_table_have_metadata() {
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
fn what_is_no_stream_may_be_asked_for_as_one() {
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
